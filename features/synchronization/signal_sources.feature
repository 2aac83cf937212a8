Feature: Invalid sources in mode signal
  KIM copies all three sources without validation, so no Runtime is signaled while one of them is invalid.

  Background:
    Given the KIM double is running
    And Runtime "two" in mode signal

  Scenario Outline: An updated <source> is not signaled until the <invalid> is valid again
    When <object> is patched with:
      """
      <patch>
      """
    Then ConfigMap "kcp-system/rt-bootstrapper-signal-state" has Event "SignalsSuspended" with message containing "<message>"
    When source <source> on KCP is updated
    Then Runtime "two" is not modified
    When source <invalid> on KCP is updated
    Then KIM reconciles Runtime "two"
    And runtime "two" has source <source> of KCP

    Examples:
      | invalid     | object                                        | patch                                                   | source             | message                |
      | ConfigMap   | ConfigMap "kcp-system/rt-bootstrapper-config" | data: {rt-bootstrapper-config.json: '{"overrides": 7}'} | pull Secret        | rt-bootstrapper-config |
      | pull Secret | Secret "kcp-system/registry-credentials"      | stringData: {.dockerconfigjson: '{"auths": 7}'}         | ClusterTrustBundle | pullSecret             |
