Feature: Repair of drift on a runtime
  Changes by another client on a runtime are reverted at the next full synchronization, after ten minutes by default.

  Background:
    Given the controller runs with flags "--sync-period=1s"
    And Runtime "one" in mode direct

  Scenario Outline: The copy of the <source> that another client has <changed> on the runtime is restored
    When source <source> on runtime "one" is <changed>
    Then runtime "one" has source <source> of KCP

    Examples:
      | source             | changed |
      | pull Secret        | updated |
      | pull Secret        | deleted |
      | ClusterTrustBundle | updated |
      | ClusterTrustBundle | deleted |
      | ConfigMap          | updated |
      | ConfigMap          | deleted |

  Scenario Outline: The deleted <object> of the webhook is restored on the runtime
    When <object> on runtime "one" is deleted
    Then <object> on runtime "one" is eventually restored

    Examples:
      | object                                                                        |
      | Service "kyma-system/rt-bootstrapper-webhook-service"                         |
      | MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" |

  Scenario: Rules that another client removes from the ClusterRole of the webhook are restored on the runtime
    When ClusterRole "rt-bootstrapper-manager-role" on runtime "one" is patched with:
      """
      rules: []
      """
    Then ClusterRole "rt-bootstrapper-manager-role" on runtime "one" is eventually restored

  Scenario: A full synchronization without drift writes no object on the runtime
    Then metric "rt_bootstrapper_controller_reconcile_total" of controller increases by at least 5
    And no object of the controller on runtime "one" is modified
