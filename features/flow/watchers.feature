Feature: Watchers on KCP decide what a runtime reports
  The controller keeps a webhook for each Watcher on all runtimes, and the watcher while there is one.

  @serial
  Scenario: A further Watcher gets its webhook on the runtime, and so does one of a resource that the runtime does not have
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=True
    When Watcher "scale" is created with:
      """
      spec:
        manager: lifecycle-manager
        resourceToWatch: {group: apps, version: v1, resource: deployments/scale}
        field: spec
        serviceInfo: {name: lifecycle-manager-events, namespace: kcp-system, port: 8082}
        gateway: {selector: {matchLabels: {operator.kyma-project.io/watcher-gateway: default}}}
      """
    Then ValidatingWebhookConfiguration "skr-webhook" matches:
      """
      webhooks: [{name: kcp-system.scale.operator.kyma-project.io, rules: [{resources: [deployments/scale]}]}]
      """
    And Watcher "scale" matches:
      """
      status: {conditions: [{type: RuntimesConfigured, status: "True"}]}
      """
    When Watcher "unknown" is created with:
      """
      spec:
        manager: lifecycle-manager
        resourceToWatch: {group: none.example, version: v1, resource: things}
        field: spec
        serviceInfo: {name: lifecycle-manager-events, namespace: kcp-system, port: 8082}
        gateway: {selector: {matchLabels: {operator.kyma-project.io/watcher-gateway: default}}}
      """
    Then ValidatingWebhookConfiguration "skr-webhook" matches:
      """
      webhooks: [{name: kcp-system.unknown.operator.kyma-project.io, rules: [{resources: [things]}]}]
      """

  @serial
  Scenario: The last Watcher takes the watcher of the runtime with it
    Given Runtime "one" in mode signal whose Kyma has module "pause" and is Ready
    Then ValidatingWebhookConfiguration "skr-webhook" exists
    When Watcher "kymas" is deleted
    Then ValidatingWebhookConfiguration "skr-webhook" is deleted
    And no object on runtime "one" has fields of field manager "rt-bootstrapper-controller-watchers"
    When Watcher "kymas" is created again
    Then field status.readyReplicas of Deployment "kyma-system/skr-webhook" is 2

  @serial
  Scenario: A runtime whose watcher does not respond is reported on KCP and repaired
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=True
    When Deployment "kyma-system/skr-webhook" is patched with:
      """
      spec: {replicas: 0}
      """
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=False
    And field status.readyReplicas of Deployment "kyma-system/skr-webhook" is 2
    And RuntimeBootstrapper "one" has condition WatcherInstalled=True

  # An invalid document keeps the RuntimeBootstrapper from being Ready, and KEB from creating the Kyma.
  @serial
  Scenario: A runtime without a Kyma gets the watcher by its RuntimeBootstrapper
    Given ConfigMap "kcp-system/rt-bootstrapper-config" is patched with:
      """
      data: {rt-bootstrapper-config.json: "{"}
      """
    When KEB provisions Runtime "one" in mode direct with module "pause"
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=False with reason "SKRDomainMissing"
    When RuntimeBootstrapper "one" is patched with:
      """
      metadata: {annotations: {skr-domain: one.skr.landscape.test}}
      """
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=True
    And ValidatingWebhookConfiguration "skr-webhook" exists
    And Kyma "kcp-system/one" does not exist

  # As the lifecycle-manager leaves its objects on a runtime.
  @serial
  Scenario: Fields of the lifecycle-manager are taken over and removed
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=True
    When Deployment "kyma-system/skr-webhook" is applied by field manager "lifecycle-manager" with:
      """
      metadata: {labels: {lifecycle-manager.test/label: "1"}}
      spec: {replicas: 1, template: {metadata: {labels: {operator.kyma-project.io/pod-restart-trigger: "1"}}, spec: {containers: [{name: server, env: [{name: TLS_CALLBACK, value: "true"}]}]}}}
      """
    And label "test" of Kyma "kcp-system/one" is set to "1"
    Then field spec.replicas of Deployment "kyma-system/skr-webhook" is 2
    And Deployment "kyma-system/skr-webhook" has no label "lifecycle-manager.test/label"
    And RuntimeBootstrapper "one" has condition WatcherInstalled=True
