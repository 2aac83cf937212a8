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
