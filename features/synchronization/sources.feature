Feature: Invalid sources in mode direct
  An invalid source is reported and not synchronized; runtimes keep the copies of its last valid content.

  Background:
    Given Runtime "one" in mode direct

  Scenario Outline: A <source> with <content> is not synchronized
    When <object> is patched with:
      """
      <patch>
      """
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "InvalidSource" and message containing "<message>"
    And no object of the controller on runtime "one" is modified
    When source <source> on KCP is updated
    Then runtime "one" has source <source> of KCP

    Examples:
      | source      | content             | object                                        | patch                                                          | message            |
      | pull Secret | invalid credentials | Secret "kcp-system/registry-credentials"      | stringData: {.dockerconfigjson: '{"auths": 7}'}                | expected an object |
      | ConfigMap   | another key         | ConfigMap "kcp-system/rt-bootstrapper-config" | data: {rt-bootstrapper-config.json: null, other.json: "{}"}    | missing or empty   |
      | ConfigMap   | an invalid document | ConfigMap "kcp-system/rt-bootstrapper-config" | data: {rt-bootstrapper-config.json: '{"overrides": 7}'}        | expected a mapping |

  Scenario: A Secret of another type is not synchronized
    When source pull Secret on KCP is deleted
    And Secret "kcp-system/registry-credentials" is created with:
      """
      type: Opaque
      stringData: {.dockerconfigjson: '{"auths": {}}'}
      """
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "InvalidSource" and message containing "Opaque"
    And no object of the controller on runtime "one" is modified

  Scenario: A source that has never existed is reported and the other sources are synchronized
    Given source ClusterTrustBundle has never existed on KCP
    When source ConfigMap on KCP is updated
    Then runtime "one" has source ConfigMap of KCP
    And ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" on runtime "one" is not modified
    And RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "SourceNotFound" and message containing "ClusterTrustBundle"
