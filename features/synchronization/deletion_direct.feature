Feature: Deletion of a source in mode direct
  A source that is deleted on KCP is deleted on runtimes after a grace period, five minutes by default.

  Background:
    Given Runtime "one" in mode direct

  Scenario Outline: In mode direct a deleted <source> is deleted on the runtime after the grace period
    Given the controller runs with flags "--deletion-grace-period=5s"
    When source <source> on KCP is deleted
    Then <object> on runtime "one" is deleted
    When source <source> on KCP is created
    Then runtime "one" has source <source> of KCP

    Examples:
      | source             | object                                              |
      | pull Secret        | Secret "kyma-system/registry-credentials"           |
      | ClusterTrustBundle | ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" |
      | ConfigMap          | ConfigMap "kyma-system/rt-bootstrapper-config"      |

  Scenario: In mode direct a source that is deleted while the controller is stopped is deleted on the runtime
    Given the controller runs with flags "--deletion-grace-period=5s"
    When component controller is stopped
    And source ClusterTrustBundle on KCP is deleted
    And component controller is started
    Then ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" on runtime "one" is deleted

  Scenario: In mode direct a source that is created again within the grace period is never deleted on the runtime
    When source pull Secret on KCP is deleted
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "DeletionPending" and message containing "Secret kcp-system/"
    And no object of the controller on runtime "one" is modified
    When source pull Secret on KCP is created
    Then runtime "one" has source pull Secret of KCP
    And RuntimeBootstrapper "one" has condition ConfigurationSynchronized=True with reason "Synchronized"
