Feature: Leader election of the controller
  Of two replicas one leads; each change is written once, also when the leader changes.

  Background:
    Given Runtime "one" in mode direct

  Scenario: Only the leader of two replicas writes to the runtime
    When source ClusterTrustBundle on KCP is updated
    Then runtime "one" has the revision of the sources
    And Lease "kcp-system/rt-bootstrapper-controller" is held by exactly one replica of controller
    And the ClusterTrustBundle and the ConfigMap on runtime "one" are applied exactly once

  Scenario: Another replica takes over when the leader is killed during a reconcile
    When the API server of runtime "one" delays writes to ConfigMaps
    And all sources on KCP are updated
    And the leader of controller is killed while it writes to runtime "one"
    Then Lease "kcp-system/rt-bootstrapper-controller" is held by another replica of controller
    When the API server of runtime "one" accepts writes again
    Then runtime "one" has the revision of the sources
    And the ClusterTrustBundle and the ConfigMap on runtime "one" are applied exactly once
