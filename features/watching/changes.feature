Feature: What a user changes on a runtime, its manager on KCP hears
  The lifecycle manager acts on changes in seconds, and is left alone about anything else.

  # Name, type and runtime ID are compared.
  @smoke
  Scenario: A Kyma is created
    When a user creates a Kyma
    Then lifecycle-manager hears of it
    # Admission precedes storage: a confirming event follows.
    And lifecycle-manager hears of it twice

  Scenario Outline: A user <does>
    Given a Kyma that KCP knows
    When a user <does>
    Then lifecycle-manager <spec> of it
    And status-manager <status> of it

    Examples:
      | does               | spec          | status        |
      | changes its spec   | hears         | does not hear |
      | changes its status | does not hear | hears         |
      | changes its labels | does not hear | does not hear |
      | changes nothing    | does not hear | does not hear |
      | deletes it         | hears         | does not hear |

  Scenario Outline: In a dry run, a user <would>
    Given a Kyma that KCP knows
    When a user <would>
    Then lifecycle-manager does not hear of it

    Examples:
      | would                 |
      | would change its spec |
      | would delete it       |
