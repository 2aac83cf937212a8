Feature: Migration of a runtime between the modes
  A label on the Runtime changes the mode; during the change exactly one webhook is registered on the runtime.

  Background:
    Given the KIM double is running
    And runtime "two" installed by KIM

  @node @slow
  Scenario: Every Pod is mutated while a runtime is migrated to mode direct and back
    Given Pods that opt in are created continuously on runtime "two"
    And Pod "running" that opts in runs on runtime "two"
    When Runtime "two" is migrated to mode direct
    And Runtime "two" is migrated to mode signal
    Then every created Pod is mutated
    And every created Pod finds exactly one webhook configuration
    And Pod "running" on runtime "two" was not restarted

  @node
  Scenario: A migration to mode direct adopts the objects that KIM installed
    When Runtime "two" is migrated to mode direct
    Then RuntimeBootstrapper "two" has condition Ready=True with reason "Ready"
    And no object on runtime "two" has fields of field manager "kim-bootstrapper"
    And field spec.template.spec.volumes of Deployment "kyma-system/rt-bootstrapper-controller-manager" on runtime "two" is null
    And field webhooks.0.objectSelector of MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" on runtime "two" is {}
    And field manager "rt-bootstrapper-webhook" owns only field "caBundle" of MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" on runtime "two"
    And Role "kyma-system/rt-bootstrapper-leader-election-role" on runtime "two" does not exist

  @node
  Scenario: A migration to mode signal orphans the objects of the controller
    When Runtime "two" is migrated to mode direct
    And Runtime "two" is migrated to mode signal
    Then RuntimeBootstrapper "two" does not exist
    And ConfigMap "kyma-system/rt-bootstrapper-owner" on runtime "two" does not exist
    And no object on runtime "two" has fields of field manager "rt-bootstrapper-controller"
    And the Pods of the webhook on runtime "two" are not replaced

  @node @slow
  Scenario: After a migration back to mode signal an updated source is synchronized by KIM
    When Runtime "two" is migrated to mode direct
    And Runtime "two" is migrated to mode signal
    And source pull Secret on KCP is updated
    Then KIM reconciles Runtime "two"
    And runtime "two" has source pull Secret of KCP

  @node @slow
  Scenario: A source that is updated during a migration of an unreachable runtime is synchronized by KIM
    When Runtime "two" is migrated to mode direct
    And runtime "two" becomes unreachable
    And label "rt-bootstrapper.kyma-project.io/mode" of Runtime "two" is set to "signal"
    And source pull Secret on KCP is updated
    And runtime "two" becomes reachable
    Then KIM reconciles Runtime "two"
    And runtime "two" has source pull Secret of KCP

  # The public webhook ignores the key of the document. The image never starts, so the public webhook keeps running.
  @node
  Scenario: A configuration document that the running webhook does not support waits for the upgrade of the webhook
    Given RuntimeBootstrapper "two" exists with:
      """
      spec: {paused: true, webhook: {image: "localhost/never:1"}}
      """
    And label "rt-bootstrapper.kyma-project.io/mode" of Runtime "two" is set to "direct"
    When ConfigMap "kcp-system/rt-bootstrapper-config" is patched with:
      """
      data: {rt-bootstrapper-config.json: '{"overrides": {}, "optOut": []}'}
      """
    And RuntimeBootstrapper "two" is patched with:
      """
      spec: {paused: false}
      """
    Then RuntimeBootstrapper "two" has condition ConfigurationSynchronized=False with reason "IncompatibleWebhookVersion" and message containing "optOut"
    When RuntimeBootstrapper "two" is patched with:
      """
      spec: {webhook: null}
      """
    Then RuntimeBootstrapper "two" has condition Ready=True with reason "Ready"
