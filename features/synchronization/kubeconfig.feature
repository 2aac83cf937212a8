Feature: Kubeconfigs as untrusted input
  A kubeconfig gives an address, CA certificates and one credential; everything else in it is rejected.

  Background:
    Given Runtime "two" without a webhook

  Scenario Outline: A kubeconfig with <content> is rejected
    When the kubeconfig of Runtime "two" contains "<content>"
    And RuntimeBootstrapper "two" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "two" has condition Reachable=False with reason "InvalidKubeconfig"
    And no object of the controller on runtime "two" is modified

    Examples:
      | content                    |
      | an exec plugin             |
      | the path of a file         |
      | a proxy                    |
      | a plain http address       |
      | insecure-skip-tls-verify   |
      | a leaf certificate as CA   |
      | invalid YAML               |

  Scenario Outline: A kubeconfig Secret with <content> is reported
    When the kubeconfig of Runtime "two" contains "<content>"
    And RuntimeBootstrapper "two" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "two" has condition Reachable=False with reason "KubeconfigNotFound" and message containing "<message>"
    And no object of the controller on runtime "two" is modified

    Examples:
      | content             | message               |
      | another key         | key config is missing |
      | an empty key config | key config is empty   |

  Scenario: A missing kubeconfig Secret is reported
    When the kubeconfig of Runtime "two" is deleted
    And RuntimeBootstrapper "two" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "two" has condition Reachable=False with reason "KubeconfigNotFound" and message containing "not found"
    And no object of the controller on runtime "two" is modified
