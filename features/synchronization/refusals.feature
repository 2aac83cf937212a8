Feature: A kubeconfig is not trusted, and nothing is written to the wrong cluster
  Credentials of thousands of clusters pass through one process: each goes to its own cluster or nowhere.

  Scenario Outline: A kubeconfig that asks for more than a connection
    Given a Runtime whose kubeconfig has <content>
    When a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "KubeconfigInvalid"
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

  Scenario Outline: There is no kubeconfig
    Given a Runtime whose kubeconfig Secret <state>
    When a RuntimeBootstrapper is created for it
    Then its condition Reachable is False with the reason "KubeconfigMissing", naming "<fault>"
    And the runtime is not written to

    Examples:
      | state           | fault           |
      | is missing      | no Secret       |
      | lacks its key   | no key `config` |
      | is empty        | is empty        |
