Feature: What happened while nobody looked is caught up with
  Controllers restart; a change made in between has to arrive all the same.

  Scenario Outline: A source changes while the controller is down
    Given a Runtime without a cluster
    When the controller is down
    And the <source> changes on KCP
    And the controller is up again
    Then the Runtime carries the signal

    Examples:
      | source        |
      | pull Secret   |
      | trust bundle  |
      | configuration |

  Scenario: Nothing changed while the controller was down
    Given a Runtime without a cluster
    When the controller is down
    And the controller is up again
    Then the Runtime is not written

  Scenario: The first start ever signals nobody
    Given a Runtime without a cluster
    When the controller is down
    And its record is lost
    And the controller is up again
    Then the Runtime is not written
    And the record knows the sources

  Scenario: A source that never existed signals nobody
    Given a Runtime without a cluster
    And the controller never knew a trust bundle
    Then the Runtime is not written
    When the trust bundle is created on KCP
    Then the Runtime carries the signal

  Scenario: The controller dies in the middle of its signals
    Given 50 Runtimes without a cluster
    When the pull Secret changes on KCP
    And the controller is killed after the first signals
    Then every Runtime carries the signal
