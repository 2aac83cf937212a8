Feature: Removal of the webhook from a runtime
  Deleting a RuntimeBootstrapper removes everything that the controller and the webhook created on the runtime.

  @node
  Scenario: The webhook configuration is deleted before the webhook
    Given Runtime "two" without a webhook
    When RuntimeBootstrapper "two" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "two" has condition Ready=True with reason "Ready"
    When RuntimeBootstrapper "two" is deleted
    Then the webhook configuration on runtime "two" is deleted before the Deployment of the webhook
    And RuntimeBootstrapper "two" is deleted

  @node
  Scenario: A deleted RuntimeBootstrapper leaves the same objects on the runtime as before its creation
    Given Runtime "two" without a webhook
    And Namespace "opted-in" on runtime "two" exists with:
      """
      metadata: {annotations: {rt-cfg.kyma-project.io/add-img-pull-secret: "true"}}
      """
    And the inventory of runtime "two" is recorded
    When RuntimeBootstrapper "two" is created with:
      """
      spec: {}
      """
    Then Secret "opted-in/registry-credentials" on runtime "two" exists
    When RuntimeBootstrapper "two" is deleted
    Then the inventory of runtime "two" equals the recorded one
