Feature: Two controllers are as good as one
  A second replica is there for the day on which the first dies; it must not do the work twice.

  Background:
    Given a runtime in direct mode

  Scenario: One of two replicas works
    Given one replica of two leads
    When the trust bundle changes on KCP
    Then the runtime has the new trust bundle
    And it becomes Ready
    And its trust bundle and its configuration were applied once, whoever led

  Scenario: The controller is killed in the middle of a pass
    Given the runtime takes its time over the configuration
    When the three sources change on KCP
    And the controller is killed in the middle of its pass
    And the runtime is quick again
    Then the runtime has the three sources of KCP
    And one replica leads
    And its trust bundle and its configuration were applied once, whoever led
