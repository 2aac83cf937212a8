Feature: Each runtime is the cluster that it was
  A kubeconfig that leads to another cluster is an accident that must cost nothing.

  Scenario: A kubeconfig leads to the cluster of another runtime
    Given a runtime in direct mode
    When another Runtime's kubeconfig leads to the same cluster
    And a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "ClusterClaimed"
    And the runtime is not written to

  Scenario: A rebuilt cluster waits for an operator's word
    Given a runtime in direct mode
    When its kubeconfig leads to another cluster
    Then its condition Reachable is False with the reason "ClusterRebuilt"
    And the other cluster is not written to
    When an operator accepts the cluster
    Then it becomes Ready

  Scenario: A cluster that another control plane manages
    Given a runtime without a webhook that names another control plane
    When a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "ForeignMarker"
    And the runtime is not written to

  Scenario: Two Runtimes have the same runtime id
    Given a runtime in direct mode
    When another Runtime carries the same runtime id
    And a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "RuntimeUnidentified"
    When the pull Secret changes on KCP
    Then the runtime is not written to

  Scenario: A Runtime without a runtime id
    Given a Runtime without a runtime id
    When a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "RuntimeUnidentified"
