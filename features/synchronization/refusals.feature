Feature: Kubeconfigs as untrusted input
  A kubeconfig gives an address, CA certificates and one credential; everything else in it is rejected.

  Scenario Outline: A kubeconfig with <content> is rejected
    Given a Runtime whose kubeconfig has <content>
    When a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "InvalidKubeconfig"
    And the runtime is not written to

    Examples:
      | content                        |
      | an exec plugin                 |
      | the path of a file             |
      | a proxy                        |
      | a plain http address           |
      | insecure-skip-tls-verify       |
      | a leaf certificate as its CA   |
      | text that is no YAML           |

  Scenario Outline: A kubeconfig Secret that <state> is reported
    Given a Runtime whose kubeconfig Secret <state>
    When a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "KubeconfigNotFound", naming "<fault>"
    And the runtime is not written to

    Examples:
      | state           | fault                 |
      | is missing      | not found             |
      | lacks its key   | key config is missing |
      | is empty        | key config is empty   |
