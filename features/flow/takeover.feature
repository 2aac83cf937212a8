# docs/migrating.md. The Pods of the lifecycle-manager have the variables of its chart, and no probe of their own. Its gateway presents
# the CA itself.
Feature: The lifecycle-manager takes over the watcher, and the controller takes it back
  The image of the watcher runs under the chart of the lifecycle-manager, beside a gateway as the lifecycle-manager configures it.

  Background:
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready

  @serial
  Scenario: No change is missed while the lifecycle-manager takes over the watcher, and while the controller takes it back
    When the lifecycle-manager takes over the watcher while Kymas are created on Runtime "one" continuously
    Then manager "lifecycle-manager" receives an event for each of the created Kymas
    And the API server got an answer to every AdmissionReview
    And metric "watcher_admission_request_total" of Service "skr-webhook-metrics" increases by at least 20
    When the controller takes over the watcher while Kymas are created on Runtime "one" continuously
    Then manager "lifecycle-manager" receives an event for each of the created Kymas
    And the API server got an answer to every AdmissionReview
