Feature: Whoever asks for a manipulation gets it, and nobody else
  The owner of a workload decides by namespace or by Pod; silence changes nothing.

  # Any one of the three layers is enough.
  @smoke
  Scenario Outline: A Pod asks for <feature>
    Given a namespace that asks for nothing
    When a Pod that asks for <feature> is admitted
    Then only <feature> is applied
    And it carries the marker

    Examples:
      | feature          |
      | registry rewrite |
      | pull secret      |
      | trust bundle     |
      | FIPS mode        |
      | landscape        |

  Scenario Outline: A namespace asks for <feature>
    Given a namespace that asks for <feature>
    When a Pod is admitted with
      | image | replace.me/harness/probe:1 |
    Then <feature> is applied
    And it carries the marker

    Examples:
      | feature          |
      | registry rewrite |
      | trust bundle     |
      | FIPS mode        |
      | landscape        |

  Scenario Outline: The configuration lists the namespace for <feature>
    Given a namespace that the configuration lists for <feature>
    When a Pod is admitted with
      | image | replace.me/harness/probe:1 |
    Then only <feature> is applied

    Examples:
      | feature          |
      | registry rewrite |
      | trust bundle     |

  Scenario Outline: Only "true" is a yes, and <value> is none
    Given a namespace that asks for nothing
    When a Pod that says "<value>" to FIPS mode is admitted
    Then it is what it would be without us

    Examples:
      | value |
      | True  |
      | 1     |
      | yes   |
      |       |

  Scenario: Nobody asks
    Given a namespace that asks for nothing
    When a Pod is admitted with
      | image | replace.me/harness/probe:1 |
    Then it is what it would be without us
    And it carries no marker
    And the owner is warned of nothing
