Feature: Conformance of a landscape
  `cargo harness conformance` runs as a process with an empty environment, which has the scenario file and a kubeconfig.

  Scenario: A landscape conforms, and its check leaves nothing on the runtime
    Given runtime "skr" has the landscape of "scenarios/eu-sovereign.yaml"
    And the inventory of runtime "skr" is recorded
    When the conformance of runtime "skr" to "scenarios/eu-sovereign.yaml" is checked
    Then the check of conformance ends with exit code 0
    And the check of conformance shows no content of a Secret of runtime "skr"
    And the inventory of runtime "skr" equals the recorded one

  # Clusters run, nothing is built.
  Scenario Outline: The check of landscape <landscape> passes within a minute
    Given runtime "skr" has the landscape of "scenarios/<landscape>.yaml"
    When the conformance of runtime "skr" to "scenarios/<landscape>.yaml" is checked
    Then the check of conformance ends with exit code 0
    And the check of conformance takes at most 60 seconds

    Examples:
      | landscape         |
      | public            |
      | private-registry  |
      | two-registries    |
      | restricted-market |
      | eu-sovereign      |

  Scenario: A user who is given the rights that a check reports as missing can check
    Given runtime "skr" has the landscape of "scenarios/eu-sovereign.yaml"
    When the conformance of runtime "skr" to "scenarios/eu-sovereign.yaml" is checked by a user without rights
    Then the check of conformance ends with exit code 1
    And the check of conformance prints "lack rights; nothing was changed"
    When the conformance of runtime "skr" to "scenarios/eu-sovereign.yaml" is checked by this user with the rights that were missing
    Then the check of conformance ends with exit code 0

  Scenario: A runtime with another landscape than the scenario's is not judged by it
    Given runtime "skr" has the landscape of "scenarios/eu-sovereign.yaml"
    When the conformance of runtime "skr" to "scenarios/restricted-market.yaml" is checked
    Then the check of conformance ends with exit code 3
    And conformance check "The configuration document is that of the scenario" was not run with:
      """
      reason: "overrides.replace.me: is \"registry.landscape.test:5000\", expected no such field"
      """
    And conformance check "Pods of public-deployment come out as expected" was not run

  Scenario: Another mutating webhook that changes the same Pods is reported as the likely cause
    Given runtime "skr" has the landscape of "scenarios/eu-sovereign.yaml"
    And another mutating webhook on runtime "skr" rewrites image registry "registry.landscape.test:5000" to "elsewhere.test"
    When the conformance of runtime "skr" to "scenarios/eu-sovereign.yaml" is checked with "--timeout 5"
    Then the check of conformance ends with exit code 3
    And conformance check "Pods of pause-test1 come out as expected" failed with:
      """
      found: "elsewhere.test/kyma-project/rt-bootstrapper/pause:e2e"
      cause: "another one that gets Pods as well"
      """

  Scenario: A registry that does not answer is reported as the cause
    Given runtime "skr" has the landscape of "harness/e2e/conformance/unreachable.yaml"
    When the conformance of runtime "skr" to "harness/e2e/conformance/unreachable.yaml" is checked
    Then the check of conformance ends with exit code 3
    And conformance check "Pods of an image of the registry come out as expected" passed
    And conformance check "Pods of an image of the registry run" failed with:
      """
      cause: "the node cannot reach the registry"
      """

  Scenario: SIGINT ends a check, which removes what it made
    Given runtime "skr" has the landscape of "harness/e2e/conformance/unreachable.yaml"
    And the inventory of runtime "skr" is recorded
    When the conformance of runtime "skr" to "harness/e2e/conformance/unreachable.yaml" is checked until a Namespace of it exists
    Then the check of conformance ends with exit code 130
    And the inventory of runtime "skr" equals the recorded one

  Scenario: A landscape that lacks a bundle and an image is reported with causes and next commands
    Given runtime "skr" has the landscape of "scenarios/broken.yaml"
    When the conformance of runtime "skr" to "scenarios/broken.yaml" is checked
    Then the check of conformance ends with exit code 3
    And conformance check "Pods of a Pod that must trust the landscape's authorities come out as expected" failed with:
      """
      found: "spec.volumes"
      cause: "mounts a ClusterTrustBundle only if it exists"
      next: "kubectl --kubeconfig kubeconfig-0 get clustertrustbundles"
      """
    And conformance check "Pods of an image that the registry lacks run" failed with:
      """
      location: "skr: Pods of Pod missing"
      cause: "the registry does not have this image"
      """
