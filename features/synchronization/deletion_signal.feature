Feature: Deletion of a source in mode signal
  Runtimes are signaled after the grace period. KIM deletes no copy, and copies no source while one of them does not exist.

  Background:
    Given the KIM double is running
    And the controller runs with flags "--deletion-grace-period=5s"
    And Runtime "two" in mode signal

  Scenario Outline: In mode signal Runtimes are signaled when the <source> is deleted and when it is created again
    When source <source> on KCP is deleted
    Then KIM reconciles Runtime "two"
    When source <source> on KCP is created
    Then KIM reconciles Runtime "two"
    And runtime "two" has source <source> of KCP

    Examples:
      | source             |
      | pull Secret        |
      | ClusterTrustBundle |
      | ConfigMap          |

  # Without KIM, only the controller could change the copy. It signals after the grace period of the deletion.
  Scenario Outline: In mode signal the controller does not modify the copy of a deleted <source> on the runtime
    When source <source> on KCP is updated
    Then runtime "two" has source <source> of KCP
    And <object> on runtime "two" exists
    Given the KIM double is stopped
    When source <source> on KCP is deleted
    Then Runtime "two" is signaled
    And <object> on runtime "two" is not modified for 5 seconds

    Examples:
      | source             | object                                              |
      | pull Secret        | Secret "kyma-system/registry-credentials"           |
      | ClusterTrustBundle | ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" |
      | ConfigMap          | ConfigMap "kyma-system/rt-bootstrapper-config"      |

  Scenario: In mode signal Runtimes are signaled after a source was deleted while the controller was stopped
    Given Runtime "a" in mode signal without a cluster
    And the KIM double is stopped
    When component controller is stopped
    And source ClusterTrustBundle on KCP is deleted
    And component controller is started
    Then Runtime "a" is signaled
