Feature: Upgrade of the webhook from one working version to another
  Every Pod that is created while the replicas of the webhook are replaced is mutated by the old or the new version.

  @node @slow
  Scenario: Every Pod is mutated while the webhook is upgraded on one runtime after the other
    Given Runtime "one" in mode direct and wave 2
    And Runtime "two" in mode direct and wave 1
    And Pods that opt in are created continuously on runtime "one"
    When the controller runs with flags "--webhook-image=localhost/webhook:upgraded"
    Then the webhook on runtime "two" runs image "localhost/webhook:upgraded"
    And the webhook on runtime "one" runs image "localhost/webhook:upgraded"
    And every created Pod is mutated

  @node @slow
  Scenario: Every Pod is mutated while an upgrade is rolled back
    Given Runtime "one" in mode direct
    And the controller runs with flags "--webhook-image=localhost/webhook:upgraded"
    And the webhook on runtime "one" runs image "localhost/webhook:upgraded"
    And Pods that opt in are created continuously on runtime "one"
    When RuntimeBootstrapperRollout "webhook" is patched with:
      """
      metadata: {annotations: {rt-bootstrapper.kyma-project.io/rollback: previous}}
      """
    Then the webhook on runtime "one" runs image "webhook image"
    And every created Pod is mutated
