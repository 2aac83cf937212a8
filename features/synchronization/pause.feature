Feature: Pause of a rollout
  An operator pauses the rollout of one lane in its RuntimeBootstrapperRollout, and all writes to one runtime in its
  RuntimeBootstrapper.

  Background:
    Given Runtime "one" in mode direct

  Scenario: A paused rollout of the configuration writes to no runtime until it is resumed
    When RuntimeBootstrapperRollout "configuration" is patched with:
      """
      spec: {paused: true}
      """
    Then RuntimeBootstrapperRollout "configuration" has condition Stopped=True with reason "Paused"
    When source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "RolloutPending"
    And no object of the controller on runtime "one" is modified
    When RuntimeBootstrapperRollout "configuration" is patched with:
      """
      spec: {paused: false}
      """
    Then runtime "one" has source pull Secret of KCP

  Scenario: A paused rollout of the configuration stays paused after a restart of the controller
    When RuntimeBootstrapperRollout "configuration" is patched with:
      """
      spec: {paused: true}
      """
    And component controller is stopped
    And source pull Secret on KCP is updated
    And component controller is started
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "RolloutPending"
    And no object of the controller on runtime "one" is modified

  Scenario: A paused rollout of the webhook does not delay the configuration
    When RuntimeBootstrapperRollout "webhook" is patched with:
      """
      spec: {paused: true}
      """
    Then RuntimeBootstrapperRollout "webhook" has condition Stopped=True with reason "Paused"
    When source pull Secret on KCP is updated
    Then runtime "one" has source pull Secret of KCP

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
