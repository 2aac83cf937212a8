Feature: The API server sends Pods to the webhook, and admits them when it does not answer
  Other webhooks change Pods too, and Pods must be creatable while the webhook is down.

  @cluster
  Scenario: Only Pods and their ephemeral containers are intercepted
    Given MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" exists
    Then field webhooks.0.rules of MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" is [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers], scope: Namespaced}]
    And MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" matches:
      """
      webhooks:
      - {failurePolicy: Ignore, reinvocationPolicy: IfNeeded, sideEffects: NoneOnDryRun, timeoutSeconds: 3}
      """

  @cluster
  Scenario: A container that another webhook adds later is mutated
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And another mutating webhook that adds container "added" with image "replace.me/mesh/proxy:1" in Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1"
    When Pod "shop/web" is created with dry run
    Then image of container "app" in Pod "shop/web" is "registry.landscape.test:5000/app:1"
    And image of container "added" in Pod "shop/web" is "registry.landscape.test:5000/mesh/proxy:1"
    And every container of Pod "shop/web" has env "KYMA_FIPS_MODE_ENABLED=true"

  @serial @slow @cluster
  Scenario: A Pod is admitted unchanged while the webhook is stopped
    Given component webhook is stopped
    And Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/all=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted without review
    And the API server admitted the Pod without asking the webhook
