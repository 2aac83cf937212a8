Feature: Rollout in waves
  A new version is rolled out wave by wave, and stops at a wave that fails.

  # A Pod with this image never starts; the deadline makes the Deployment fail after seconds.
  Background:
    Given Runtime "one" in mode direct and wave 1
    And Runtime "two" in mode direct and wave 2
    And Deployment "kyma-system/rt-bootstrapper-controller-manager" on runtime "one" is patched with:
      """
      spec: {progressDeadlineSeconds: 5}
      """

  @node
  Scenario: A wave that fails stops the rollout before the next wave
    When the controller runs with flags "--webhook-image=localhost/never:1"
    Then RuntimeBootstrapper "one" has condition Installed=False with reason "ProgressDeadlineExceeded"
    And the rollout is stopped with reason "budgetSpent"
    And RuntimeBootstrapper "two" has condition Installed=False with reason "RolloutPending"
    And no object of the controller on runtime "two" is modified

  @node
  Scenario: A working version continues a rollout that was stopped
    When the controller runs with flags "--webhook-image=localhost/never:1"
    Then the rollout is stopped with reason "budgetSpent"
    When Deployment "kyma-system/rt-bootstrapper-controller-manager" on runtime "one" is patched with:
      """
      spec: {progressDeadlineSeconds: 600}
      """
    And the controller runs with flags ""
    Then RuntimeBootstrapper "one" has condition Ready=True with reason "Ready"
    And RuntimeBootstrapper "two" has condition Ready=True with reason "Ready"
