Feature: Identity of a cluster
  A kubeconfig that leads to another cluster causes no write to that cluster.

  Scenario: A kubeconfig that leads to the cluster of another runtime is rejected
    Given a runtime in direct mode
    When another Runtime's kubeconfig leads to the same cluster
    And a RuntimeBootstrapper is created for it
    Then its condition IdentityVerified is False with the reason "ClusterAlreadyManaged"
    And the runtime is not written to

  Scenario: A rebuilt cluster is not written to before an operator accepts it
    Given a runtime in direct mode
    When its kubeconfig leads to another cluster
    Then its condition IdentityVerified is False with the reason "ClusterUIDChanged"
    And the other cluster is not written to
    When an operator accepts the cluster
    Then it becomes Ready

  Scenario: A cluster that another control plane manages is rejected
    Given a runtime without a webhook that names another control plane
    When a RuntimeBootstrapper is created for it
    Then its condition IdentityVerified is False with the reason "OwnershipConflict"
    And the runtime is not written to

  Scenario: A runtime ID that two Runtimes share is rejected
    Given a runtime in direct mode
    When another Runtime carries the same runtime id
    And a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "RuntimeIDConflict"
    When the pull Secret changes on KCP
    Then the runtime is not written to

  Scenario: A Runtime without a runtime ID is reported
    Given a Runtime without a runtime id
    When a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "RuntimeIDMissing"
