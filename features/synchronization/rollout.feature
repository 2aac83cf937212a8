Feature: Rollout of the webhook in steps
  A new version of the webhook reaches one runtime first. If it does not become ready there, no other runtime gets it.

  # Pods with these images never start; the deadline makes the Deployment fail after seconds. Each scenario has an image of its own:
  # of a ReplicaSet that exists already Kubernetes may not see that it makes no progress.
  Background:
    Given Runtime "one" in mode direct and wave 1
    And Runtime "two" in mode direct and wave 2
    And RuntimeBootstrapperRollout "webhook" has condition Completed=True
    And Deployment "kyma-system/rt-bootstrapper-controller-manager" on runtime "one" is patched with:
      """
      spec: {progressDeadlineSeconds: 5}
      """

  @node
  Scenario: A version that does not become ready stops the rollout, and other runtimes keep the completed version
    When the controller runs with flags "--webhook-image=localhost/never:2"
    Then RuntimeBootstrapper "one" has condition Installed=False with reason "ProgressDeadlineExceeded"
    And RuntimeBootstrapperRollout "webhook" has condition Stopped=True with reason "FailureLimitExceeded"
    And RuntimeBootstrapper "two" has condition Ready=True with reason "Ready"
    And no object of the controller on runtime "two" is modified

  @node
  Scenario: Credentials are synchronized while the rollout of the webhook is stopped
    When the controller runs with flags "--webhook-image=localhost/never:3"
    Then RuntimeBootstrapperRollout "webhook" has condition Stopped=True with reason "FailureLimitExceeded"
    When source pull Secret on KCP is updated
    Then runtime "one" has source pull Secret of KCP
    And runtime "two" has source pull Secret of KCP

  @node
  Scenario: A working version continues a rollout that was stopped
    When the controller runs with flags "--webhook-image=localhost/never:4"
    Then RuntimeBootstrapperRollout "webhook" has condition Stopped=True with reason "FailureLimitExceeded"
    When Deployment "kyma-system/rt-bootstrapper-controller-manager" on runtime "one" is patched with:
      """
      spec: {progressDeadlineSeconds: 600}
      """
    And the controller runs with flags "--webhook-image=localhost/webhook:upgraded"
    Then the webhook on runtime "one" runs image "localhost/webhook:upgraded"
    And the webhook on runtime "two" runs image "localhost/webhook:upgraded"
    And RuntimeBootstrapperRollout "webhook" has condition Completed=True
