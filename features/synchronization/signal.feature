Feature: Synchronization in mode signal
  A changed source marks the selected Runtimes with a key that KIM acknowledges; KIM then writes the sources to the runtime.

  @smoke
  Scenario Outline: In mode signal an updated <source> is synchronized by KIM that acknowledges the <key>
    Given the KIM double is running and acknowledges the <key>
    And Runtime "two" in mode signal
    When source <source> on KCP is updated
    Then KIM reconciles Runtime "two"
    And runtime "two" has source <source> of KCP
    And Runtime "two" is not signaled

    Examples:
      | source             | key        |
      | pull Secret        | label      |
      | pull Secret        | annotation |
      | ClusterTrustBundle | label      |
      | ClusterTrustBundle | annotation |
      | ConfigMap          | label      |
      | ConfigMap          | annotation |

  # The update at the end shows that the controller did observe the change before.
  Scenario Outline: A change of <what> on KCP signals no Runtime
    Given Runtime "a" in mode signal without a cluster
    When label "touched" of <object> is set to "true"
    Then Runtime "a" is not modified
    When source pull Secret on KCP is updated
    Then Runtime "a" is signaled

    Examples:
      | what                       | object                                         |
      | the metadata of the Secret | Secret "kcp-system/registry-credentials"       |
      | the ConfigMap's metadata   | ConfigMap "kcp-system/rt-bootstrapper-config"  |
      | another ConfigMap          | ConfigMap "kcp-system/kube-root-ca.crt"        |
