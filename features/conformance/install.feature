Feature: Conformance of a runtime without the product
  What is missing is reported, or installed for the time of the check.

  Scenario: A runtime without the product is reported so
    When the conformance of runtime "plain" to "scenarios/public.yaml" is checked
    Then the check of conformance ends with exit code 3
    And conformance check "A mutating webhook is registered for Pods" failed with:
      """
      cause: "the webhook is not installed on this cluster"
      next: "manifests webhook --image"
      """
    And conformance check "The configuration document is that of the scenario" failed with:
      """
      found: "no such ConfigMap"
      """

  Scenario: The product is installed for the time of a check
    Given the inventory of runtime "plain" is recorded
    When the conformance of runtime "plain" to "scenarios/eu-sovereign.yaml" is checked with "--install"
    Then the check of conformance ends with exit code 0
    And the check of conformance shows no content of a Secret of runtime "plain"
    And the inventory of runtime "plain" equals the recorded one

  Scenario: A dry run prints the requests of an installation and changes nothing
    Given the inventory of runtime "plain" is recorded
    When the conformance of runtime "plain" to "scenarios/eu-sovereign.yaml" is checked with "--install --dry-run"
    Then the check of conformance ends with exit code 0
    And the check of conformance prints "POST   /apis/apps/v1/namespaces/kyma-system/deployments"
    And the inventory of runtime "plain" equals the recorded one

  Scenario Outline: <what> ends with exit code <code> before a cluster is asked
    When the conformance of runtime "plain" to "<file>" is checked with "<option>"
    Then the check of conformance ends with exit code <code>
    And the check of conformance prints "<text>"

    Examples:
      | what                       | file                          | option      | code | text                                         |
      | An unknown option          | scenarios/public.yaml         | --unknown   | 2    | unexpected argument '--unknown'              |
      | A file that is no scenario | README.md                     | --timeout 5 | 1    | README.md:                                   |
      | An installation for a KCP  | scenarios/watcher-status.yaml | --install   | 1    | controlPlane: expected a scenario without it |

  Scenario: SIGINT ends an installation, which is removed
    Given the inventory of runtime "plain" is recorded
    When the conformance of runtime "plain" to "scenarios/eu-sovereign.yaml" is checked with "--install" until the Deployment of the webhook exists
    Then the check of conformance ends with exit code 130
    And the inventory of runtime "plain" equals the recorded one

  Scenario: The product is not installed where an object of it exists
    Given runtime "skr" has the landscape of "scenarios/eu-sovereign.yaml"
    And the inventory of runtime "skr" is recorded
    When the conformance of runtime "skr" to "scenarios/eu-sovereign.yaml" is checked with "--install"
    Then the check of conformance ends with exit code 1
    And the check of conformance prints "these objects exist; nothing was changed"
    And the inventory of runtime "skr" equals the recorded one
