Feature: Synchronization in mode direct
  The controller writes the pull Secret, the ClusterTrustBundle and the ConfigMap of KCP to the runtime itself.

  Background:
    Given Runtime "one" in mode direct

  @node @smoke
  Scenario Outline: In mode direct an updated <source> is synchronized and used by the webhook
    When source <source> on KCP is updated
    Then runtime "one" has source <source> of KCP
    And the webhook on runtime "one" uses source <source>

    Examples:
      | source      |
      | pull Secret |
      | ConfigMap   |

  # A patch of the webhook names the bundle only. What shows that the webhook observed the content is that it counts earlier Pods.
  @node
  Scenario: In mode direct an updated ClusterTrustBundle is synchronized, and Pods that mount the earlier one are outdated
    Given Pod "running" that opts in runs on runtime "one"
    When source ClusterTrustBundle on KCP is updated
    Then runtime "one" has source ClusterTrustBundle of KCP
    And metric "outdated_pods TrustBundleChanged" of component webhook is at least 1 on runtime "one"

  @node
  Scenario: In mode direct sources that are updated together are synchronized as one revision
    When all sources on KCP are updated
    Then runtime "one" has the revision of the sources
    And the status of RuntimeBootstrapper "one" has the version, the ready replicas and the hashes of runtime "one"
    And RuntimeBootstrapper "one" has condition ConfigurationSynchronized=True with reason "Synchronized"

  Scenario: In mode direct a key that is removed from the ConfigMap on KCP is removed on the runtime
    When ConfigMap "kcp-system/rt-bootstrapper-config" is patched with:
      """
      data: {second.json: "{}"}
      """
    Then ConfigMap "kyma-system/rt-bootstrapper-config" on runtime "one" matches:
      """
      data: {second.json: "{}"}
      """
    When ConfigMap "kcp-system/rt-bootstrapper-config" is patched with:
      """
      data: {second.json: null}
      """
    Then runtime "one" has source ConfigMap of KCP

  # The ConfigMap is synchronized after the change of the pull Secret was observed.
  Scenario: In mode direct a change of the metadata of a source is not synchronized
    When label "touched" of Secret "kcp-system/registry-credentials" is set to "true"
    And source ConfigMap on KCP is updated
    Then runtime "one" has source ConfigMap of KCP
    And Secret "kyma-system/registry-credentials" on runtime "one" is not modified

  Scenario Outline: In mode direct a <source> that is updated while the controller is stopped is synchronized after its start
    When component controller is stopped
    And source <source> on KCP is updated
    And component controller is started
    Then runtime "one" has source <source> of KCP

    Examples:
      | source             |
      | pull Secret        |
      | ClusterTrustBundle |
      | ConfigMap          |
