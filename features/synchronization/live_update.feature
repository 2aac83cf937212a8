Feature: Sources change while Pods are created, and no Pod is half configured
  A rotation happens in the middle of the day; every Pod of that minute is of the old version or of the new one.

  Background:
    Given a runtime in direct mode

  @node
  Scenario Outline: A source changes
    Given Pods that opt in are created on the runtime all the while
    When the <source> changes on KCP
    Then the runtime has the new <source>
    And the webhook on the runtime decides by it
    And every Pod was admitted and carries the marker
    And every Pod mounts the trust bundle

    Examples:
      | source        |
      | pull Secret   |
      | trust bundle  |
      | configuration |

  @node
  Scenario: All three change together
    Given the three sources belong together
    And Pods that opt in are created on the runtime all the while
    When the three sources change on KCP
    Then the runtime has the three sources of KCP
    And the webhook on the runtime decides by them
    And every Pod was admitted and carries the marker
    And none of them is half of one version and half of another
