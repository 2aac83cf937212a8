Feature: Selection of the Runtimes to signal
  Only the keys of the signal and the signaled revision are written, and only to Runtimes in mode signal that the selector matches.

  Scenario: A signal modifies nothing of a Runtime but the keys and the signaled revision
    Given Runtime "selected" in mode signal without a cluster
    When source pull Secret on KCP is updated
    Then Runtime "selected" is signaled
    And nothing of Runtime "selected" is modified except the keys of the signal

  Scenario: A Runtime that already has the keys is not written again
    Given Runtime "signaled" in mode signal without a cluster
    And label "operator.kyma-project.io/force-patch-reconciliation" of Runtime "signaled" is set to "true"
    And annotation "operator.kyma-project.io/force-patch-reconciliation" of Runtime "signaled" is set to "true"
    And Runtime "selected" in mode signal without a cluster
    When source pull Secret on KCP is updated
    Then Runtime "selected" is signaled
    And Runtime "signaled" is not modified

  Scenario: A Runtime that is being deleted is not signaled
    Given Runtime "deleted" in mode signal without a cluster
    And Runtime "deleted" is patched with:
      """
      metadata: {finalizers: [example.test/hold]}
      """
    And Runtime "deleted" is deleted
    And Runtime "selected" in mode signal without a cluster
    When source pull Secret on KCP is updated
    Then Runtime "selected" is signaled
    And Runtime "deleted" is not modified

  Scenario: A Runtime in mode direct is not signaled
    Given Runtime "direct" in mode direct without a cluster
    And Runtime "selected" in mode signal without a cluster
    When source pull Secret on KCP is updated
    Then Runtime "selected" is signaled
    And Runtime "direct" is not modified

  Scenario: A Runtime that --signal-selector does not match is not signaled
    Given Runtime "unselected" in mode signal without a cluster
    And Runtime "selected" in mode signal without a cluster
    And label "region" of Runtime "selected" is set to "eu"
    And the controller runs with flags "--signal-selector=region=eu"
    When source pull Secret on KCP is updated
    Then Runtime "selected" is signaled
    And Runtime "unselected" is not modified

  Scenario Outline: A controller that runs in mode signal only is not permitted to <verb> kubeconfigs
    Given the controller runs without mode direct
    Then the controller is not permitted to <verb> Secret "kcp-system/kubeconfig-any"

    Examples:
      | verb  |
      | get   |
      | list  |
      | watch |
