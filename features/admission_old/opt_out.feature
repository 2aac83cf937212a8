Feature: What a Pod can refuse, and what it cannot
  A landscape's owner relies on the set-up; the trust bundle alone may be in a workload's way.

  Scenario Outline: A Pod cannot refuse <feature>
    Given a namespace that asks for <feature>
    When a Pod that says "false" to <feature> is admitted
    Then <feature> is applied

    Examples:
      | feature          |
      | registry rewrite |
      | pull secret      |
      | FIPS mode        |
      | landscape        |

  Scenario: Nor what the configuration gives to its namespace
    Given a namespace that the configuration lists for registry rewrite
    When a Pod that says "false" to registry rewrite is admitted
    Then only registry rewrite is applied

  Scenario: A Pod refuses the trust bundle of its namespace
    Given a namespace that asks for trust bundle
    When a Pod that says "false" to trust bundle is admitted
    Then it is what it would be without us

  Scenario: A Pod refuses the trust bundle of the configuration
    Given a namespace that the configuration lists for trust bundle
    When a Pod that says "false" to trust bundle is admitted
    Then it is what it would be without us

  # One map can exclude a feature from its own "all".
  Scenario: A Pod takes all but one
    Given a namespace that asks for nothing
    When a Pod that asks for everything is admitted with
      | FIPS mode | false |
      | image     | replace.me/harness/probe:1 |
    Then FIPS mode is not applied
    And registry rewrite is applied
    And landscape is applied

  Scenario: What one layer carves out another may give
    Given a namespace that asks for FIPS mode
    When a Pod that asks for everything is admitted with
      | FIPS mode | false |
    Then FIPS mode is applied

  Scenario: A namespace asks for everything
    Given a namespace that asks for everything
    When a Pod is admitted with
      | image | replace.me/harness/probe:1 |
    Then everything is applied
    And it carries the marker
