Feature: A source that is deleted on KCP is removed from runtimes after a grace period
  Five minutes by default: a Secret that is deleted by mistake, or deleted and created again, is not taken from runtimes.

  Background:
    Given the controller runs with flags "--deletion-grace-period=5s"

  Scenario Outline: In mode direct a deleted <source> is removed, and written again when it is created
    Given a runtime in direct mode
    When the <source> is deleted on KCP
    Then the runtime has no <source> any more
    When the <source> is created on KCP
    Then the runtime has the new <source>

    Examples:
      | source        |
      | pull Secret   |
      | trust bundle  |
      | configuration |

  Scenario: In mode direct a source that is deleted while the controller is down is removed
    Given a runtime in direct mode
    When the controller is down
    And the trust bundle is deleted on KCP
    And the controller is up again
    Then the runtime has no trust bundle any more

  Scenario Outline: In mode signal Runtimes are signaled when the <source> is deleted, and when it is created
    Given the manager runs
    And a runtime kept by signals
    When the <source> is deleted on KCP
    Then the manager reconciles the runtime
    When the <source> is created on KCP
    Then the manager reconciles the runtime
    And the runtime has the new <source>

    Examples:
      | source        |
      | pull Secret   |
      | trust bundle  |
      | configuration |

  Scenario Outline: In mode signal KIM removes the deleted <source> from a runtime that has it
    Given the manager runs
    And a runtime kept by signals
    When the <source> changes on KCP
    Then the runtime has the new <source>
    When the <source> is deleted on KCP
    Then the runtime has no <source> any more

    Examples:
      | source        |
      | pull Secret   |
      | trust bundle  |
      | configuration |

  Scenario: In mode signal Runtimes are signaled when a source was deleted while the controller was down
    Given a Runtime without a cluster
    When the controller is down
    And the trust bundle is deleted on KCP
    And the controller is up again
    Then the Runtime carries the signal
