Feature: Identity of a cluster
  A kubeconfig that leads to another cluster than before causes no write to that cluster.

  Scenario: A kubeconfig that leads to the cluster of another Runtime is rejected
    Given Runtime "one" in mode direct
    And Runtime "other" without a webhook
    When the kubeconfig of Runtime "other" leads to runtime "one"
    And RuntimeBootstrapper "other" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "other" has condition IdentityVerified=False with reason "ClusterAlreadyManaged"
    And no object of the controller on runtime "one" is modified

  @node
  Scenario: A rebuilt cluster is not written before its UID is accepted
    Given Runtime "one" in mode direct
    When the kubeconfig of Runtime "one" leads to runtime "two"
    Then RuntimeBootstrapper "one" has condition IdentityVerified=False with reason "ClusterUIDChanged"
    And no object of the controller on runtime "two" is modified
    When RuntimeBootstrapper "one" is patched with:
      """
      metadata: {annotations: {rt-bootstrapper.kyma-project.io/accept-cluster-uid: UID of runtime two}}
      """
    Then RuntimeBootstrapper "one" has condition Ready=True with reason "Ready"
    And runtime "two" has the revision of the sources

  Scenario: A cluster that another control plane manages is rejected
    Given ConfigMap "kyma-system/rt-bootstrapper-owner" on runtime "two" exists with:
      """
      data: {runtimeID: another, controlPlaneID: another}
      """
    And Runtime "two" without a webhook
    When RuntimeBootstrapper "two" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "two" has condition IdentityVerified=False with reason "OwnershipConflict"
    And no object of the controller on runtime "two" is modified

  Scenario: A runtime ID that two Runtimes share is rejected
    Given Runtime "one" in mode direct
    When Runtime "other" is created with:
      """
      metadata: {labels: {kyma-project.io/runtime-id: ID of Runtime one}}
      spec: {shoot: {name: other, region: eu-central-1}}
      """
    And source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition Reachable=False with reason "RuntimeIDConflict"
    And no object of the controller on runtime "one" is modified

  Scenario: A Runtime without a runtime ID is reported
    Given Runtime "a" without a runtime ID
    When RuntimeBootstrapper "a" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "a" has condition Reachable=False with reason "RuntimeIDMissing"
