Feature: Pause of the rollout
  An operator pauses the rollout of all runtimes by an annotation, and that of one runtime in its RuntimeBootstrapper.

  Background:
    Given Runtime "one" in mode direct

  Scenario: A paused rollout writes to no runtime until it is resumed
    When annotation "rt-bootstrapper.kyma-project.io/paused" of ConfigMap "kcp-system/rt-bootstrapper-rollout" is set to "true"
    Then the rollout is stopped with reason "paused"
    When source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "RolloutPending"
    And no object of the controller on runtime "one" is modified
    When annotation "rt-bootstrapper.kyma-project.io/paused" of ConfigMap "kcp-system/rt-bootstrapper-rollout" is removed
    Then runtime "one" has source pull Secret of KCP

  Scenario: A paused rollout stays paused after a restart of the controller
    When annotation "rt-bootstrapper.kyma-project.io/paused" of ConfigMap "kcp-system/rt-bootstrapper-rollout" is set to "true"
    Then the rollout is stopped with reason "paused"
    When component controller is stopped
    And source pull Secret on KCP is updated
    And component controller is started
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "RolloutPending"
    And no object of the controller on runtime "one" is modified

  Scenario: A paused RuntimeBootstrapper keeps its runtime unmodified until it is resumed
    When RuntimeBootstrapper "one" is patched with:
      """
      spec: {paused: true}
      """
    And source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "Paused"
    And no object of the controller on runtime "one" is modified
    When RuntimeBootstrapper "one" is patched with:
      """
      spec: {paused: false}
      """
    Then runtime "one" has source pull Secret of KCP
