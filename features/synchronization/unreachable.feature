Feature: Failures of one runtime
  A runtime that is unreachable or rejects writes does not delay other runtimes, and is synchronized afterwards.

  # A connection attempt ends after five seconds.
  Scenario: Unreachable runtimes do not delay the synchronization of other runtimes
    Given Runtime "silent" in mode direct with an address that does not respond
    And Runtime "mute" in mode direct with an address that does not respond
    And Runtime "deaf" in mode direct with an address that does not respond
    And Runtime "one" in mode direct
    When source pull Secret on KCP is updated
    Then runtime "one" has source pull Secret of KCP within 10 seconds
    And RuntimeBootstrapper "silent" has condition Reachable=False with reason "Timeout"

  Scenario: A runtime that becomes reachable again is synchronized
    Given Runtime "one" in mode direct
    When runtime "one" becomes unreachable
    And source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition Reachable=False
    When runtime "one" becomes reachable
    Then runtime "one" has source pull Secret of KCP
    And RuntimeBootstrapper "one" has condition Reachable=True with reason "Connected"

  Scenario: A kubeconfig that is removed and written again is used
    Given Runtime "one" in mode direct
    When the kubeconfig of Runtime "one" contains "another key"
    And source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition Reachable=False with reason "KubeconfigNotFound"
    When the kubeconfig of Runtime "one" leads to runtime "one"
    Then runtime "one" has source pull Secret of KCP
    And RuntimeBootstrapper "one" has condition Reachable=True with reason "Connected"

  Scenario: Missing permissions on a runtime are reported and the runtime is synchronized when they are granted
    Given Runtime "one" in mode direct
    When the kubeconfig of Runtime "one" contains "a read-only user"
    And source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "InsufficientPermissions" and message containing "patch secrets"
    When the kubeconfig of Runtime "one" leads to runtime "one"
    Then runtime "one" has source pull Secret of KCP

  Scenario: A write that an admission policy denies is reported and repeated when the policy is deleted
    Given Runtime "one" in mode direct
    When the API server of runtime "one" denies writes to Secrets
    And source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "ApplyFailed" and message containing "Secret"
    When the API server of runtime "one" accepts writes again
    Then runtime "one" has source pull Secret of KCP

  Scenario: A write that a quota rejects is reported and repeated when the quota is deleted
    Given Runtime "one" in mode direct
    And ResourceQuota "kyma-system/scenario" on runtime "one" exists with:
      """
      spec: {hard: {count/secrets: "0"}}
      """
    When source pull Secret on runtime "one" is deleted
    And source pull Secret on KCP is updated
    Then RuntimeBootstrapper "one" has condition ConfigurationSynchronized=False with reason "ApplyFailed" and message containing "a quota is exceeded"
    When ResourceQuota "kyma-system/scenario" on runtime "one" is deleted
    Then runtime "one" has source pull Secret of KCP

  Scenario: A manifest of the webhook that a quota rejects does not delay rotated credentials
    Given Runtime "one" in mode direct
    And PodDisruptionBudget "kyma-system/rt-bootstrapper-controller-manager" on runtime "one" is deleted
    And ResourceQuota "kyma-system/scenario" on runtime "one" exists with:
      """
      spec: {hard: {count/poddisruptionbudgets.policy: "0"}}
      """
    When the controller runs with flags "--sync-period=1s"
    Then RuntimeBootstrapper "one" has condition Installed=False with reason "ApplyFailed" and message containing "PodDisruptionBudget"
    When source pull Secret on KCP is updated
    Then runtime "one" has the revision of the sources
