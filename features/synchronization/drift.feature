Feature: Drift on a runtime is repaired
  What another client changes on a runtime is restored at the next periodic synchronization, after ten minutes by default.

  Background:
    Given the controller runs with flags "--sync-period=1s"
    And a runtime in direct mode

  Scenario: Synchronized objects that are edited or deleted are restored
    Then these changes on the runtime are reverted:
      | object        | change  |
      | pull Secret   | edited  |
      | pull Secret   | deleted |
      | trust bundle  | edited  |
      | trust bundle  | deleted |
      | configuration | edited  |
      | configuration | deleted |

  @node
  Scenario: Parts of the webhook that are edited or deleted are restored
    When Service of the webhook is deleted on the runtime
    Then Service of the webhook is restored
    When MutatingWebhookConfiguration of the webhook is deleted on the runtime
    Then MutatingWebhookConfiguration of the webhook is restored
    When the rules of ClusterRole of the webhook are removed on the runtime
    Then ClusterRole of the webhook is restored

  Scenario: Objects without drift are not written
    Then the runtime is not written to
