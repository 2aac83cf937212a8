Feature: Changes on a runtime lead to a reconcile on KCP
  A Watcher on KCP is all that installs the watcher on the runtime. It reports a change, and KLM reconciles the Kyma long before its
  interval of an hour has passed.

  Scenario Outline: KLM reconciles a Kyma within seconds after a change of its <change> on the runtime in mode <mode>
    Given Runtime "one" in mode <mode> whose Kyma has module "pause" and is Ready
    Then ValidatingWebhookConfiguration "skr-webhook" exists
    Given KLM has nothing to do for Runtime "one"
    When Kyma "kyma-system/default" is patched with:
      """
      spec: {skipMaintenanceWindows: true}
      """
    Then KLM reconciles the Kyma of Runtime "one" within 30 seconds, and 2 times in all

    Examples:
      | mode   | change |
      | signal | spec   |
      | direct | spec   |

  Scenario Outline: KLM reconciles a Kyma after a change of its spec, but not of its labels or status, on the runtime in mode <mode>
    Given Runtime "one" in mode <mode> whose Kyma has module "pause" and is Ready
    And KLM has nothing to do for Runtime "one"
    When label "landscape.test/team" of Kyma "kyma-system/default" is set to "a"
    And subresource status of Kyma "kyma-system/default" is patched with:
      """
      status: {activeChannel: fast}
      """
    Then KLM does not reconcile the Kyma of Runtime "one"
    When Kyma "kyma-system/default" is patched with:
      """
      spec: {skipMaintenanceWindows: true}
      """
    Then KLM reconciles the Kyma of Runtime "one" within 30 seconds, and 2 times in all

    Examples:
      | mode   |
      | signal |
      | direct |
