Feature: Heartbeats of watchers
  A watcher that stops sending heartbeats is reported, so that it cannot be mistaken for a runtime without changes.

  # https://github.com/kyma-project/lifecycle-manager/issues/3524
  @smoke
  Scenario: A runtime with running watchers is reported as responsive
    Then manager "lifecycle-manager" receives heartbeats from 2 watchers
    And manager "lifecycle-manager" reports the runtime as responsive

  # The heartbeat interval is two seconds here. The upper bounds are for a busy machine; unit tests show the exact times.
  @serial
  Scenario: A runtime is reported as unresponsive after three missed heartbeats, while objects are written there
    Given Namespace "shop"
    When component watcher is stopped
    And Kyma "shop/app" is created with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: kyma}}
      """
    Then Kyma "shop/app" exists
    And manager "lifecycle-manager" reports the runtime as unresponsive between 6 and 12 seconds after its last heartbeat
    When component watcher is started
    Then manager "lifecycle-manager" reports the runtime as responsive

  # No heartbeat was missed: the last ones say since when the watchers terminate, the first ones since when others are ready.
  @serial
  Scenario: A time in which no watcher was ready requires a resync
    When component watcher is stopped
    And component watcher is started
    Then metric "watcher_listener_resyncs_required_total" of manager "lifecycle-manager" increases by at least 1

  # A manager that writes objects on the runtime tells its listener, which then expects a review.
  @serial
  Scenario: A runtime whose webhook configuration was deleted is reported as unresponsive
    Given Namespace "shop"
    And ValidatingWebhookConfiguration "skr-webhook" is deleted
    When manager "lifecycle-manager" writes a Kyma in Namespace "shop"
    Then manager "lifecycle-manager" reports the runtime as unresponsive with reason "ReviewMissing" within 3 heartbeats
    When ValidatingWebhookConfiguration "skr-webhook" is created again
    And manager "lifecycle-manager" writes a Kyma in Namespace "shop"
    Then manager "lifecycle-manager" reports the runtime as responsive

  @serial
  Scenario: A runtime whose API server does not trust the watcher is reported as unresponsive
    Given Namespace "shop"
    And Kymas are created continuously in Namespace "shop"
    When the caBundle of the watcher is replaced by another CA
    Then manager "lifecycle-manager" reports the runtime as unresponsive with reason "HandshakeFailed" within 3 heartbeats
