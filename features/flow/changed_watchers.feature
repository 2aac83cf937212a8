Feature: A Watcher that is edited changes what a runtime reports
  The controller writes the edited Watcher to all runtimes; the watcher there is not restarted.

  Background:
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    And Kyma "kyma-system/app" exists with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: kyma}}
      spec: {channel: regular}
      """

  @serial
  Scenario: Changes of the status are reported as soon as the field of the Watcher is changed from spec to status
    Given KLM has nothing to do for Runtime "one"
    When subresource status of Kyma "kyma-system/app" is patched with:
      """
      status: {state: Processing}
      """
    Then KLM does not reconcile the Kyma of Runtime "one"
    When Watcher "kymas" is patched with:
      """
      spec: {field: status}
      """
    Then ValidatingWebhookConfiguration "skr-webhook" matches:
      """
      webhooks: [{name: kcp-system.kymas.operator.kyma-project.io, rules: [{resources: [kymas/status]}]}]
      """
    When subresource status of Kyma "kyma-system/app" is patched with:
      """
      status: {state: Ready}
      """
    Then manager "lifecycle-manager" receives an event for Kyma "kyma-system/app"
