Feature: Signals after a downtime of the controller
  What changed while no controller ran is signaled after the start; an unchanged state is not.

  Background:
    Given Runtime "a" in mode signal without a cluster

  Scenario Outline: Runtimes are signaled after the <source> was updated while the controller was stopped
    When component controller is stopped
    And source <source> on KCP is updated
    And component controller is started
    Then Runtime "a" is signaled

    Examples:
      | source             |
      | pull Secret        |
      | ClusterTrustBundle |
      | ConfigMap          |

  Scenario: No Runtime is signaled after a restart without an update
    When component controller is restarted
    Then Runtime "a" is not modified
    When source pull Secret on KCP is updated
    Then Runtime "a" is signaled

  Scenario: No Runtime is signaled after the state ConfigMap was deleted
    When component controller is stopped
    And ConfigMap "kcp-system/rt-bootstrapper-signal-state" is deleted
    And component controller is started
    Then ConfigMap "kcp-system/rt-bootstrapper-signal-state" exists
    And Runtime "a" is not modified
    When source pull Secret on KCP is updated
    Then Runtime "a" is signaled

  Scenario: A source that has never existed signals Runtimes when it is created
    Given source ClusterTrustBundle has never existed on KCP
    Then Runtime "a" is not modified
    When source ClusterTrustBundle on KCP is created
    Then Runtime "a" is signaled

  # With Runtime "a" not more than may be unacknowledged.
  Scenario: Every Runtime is signaled although the leader is killed after the first signals
    Given 40 Runtimes in mode signal without a cluster
    When source pull Secret on KCP is updated
    And the leader of controller is killed after it signaled the first Runtime
    Then Lease "kcp-system/rt-bootstrapper-controller" is held by another replica of controller
    And 40 Runtimes are signaled
