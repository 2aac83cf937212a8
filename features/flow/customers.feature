# The heartbeats do not show that the configuration is gone while the controller expects no review, so the controller reads each
# runtime again in the interval of a flag, which is ten minutes by default.
Feature: Customers change what the controller installs on a runtime
  The change is seen on KCP and repaired.

  Background:
    Given the controller runs with flags "--sync-period=10s"
    And Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    And RuntimeBootstrapper "one" has condition WatcherInstalled=True

  @serial
  Scenario: A webhook configuration of the watcher that a customer deletes is reported on KCP and restored
    When ValidatingWebhookConfiguration "skr-webhook" is deleted
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=False with reason "ReviewMissing"
    And Kyma "kcp-system/one" has Event "ReviewMissing" with message containing "deleted or changed"
    And RuntimeBootstrapper "one" has condition WatcherInstalled=True
    When Kyma "kyma-system/restored" is created with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: kyma}}
      spec: {channel: regular}
      """
    Then manager "lifecycle-manager" receives an event for Kyma "kyma-system/restored"
