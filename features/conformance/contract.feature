Feature: Conformance of another implementation
  The other implementation is a webhook of the test, which rewrites registries by a hundred lines of its own and does nothing else.

  Background:
    Given runtime "plain" has the configuration of "harness/e2e/conformance/rewriting.yaml" without the product

  Scenario: Another implementation conforms by what it does to Pods
    Given another mutating webhook on runtime "plain" rewrites image registry "europe-docker.pkg.dev" to "docker.io/mirrored"
    When the conformance of runtime "plain" to "harness/e2e/conformance/rewriting.yaml" is checked with "--only contract"
    Then the check of conformance ends with exit code 0

  Scenario: Metrics of the product are not expected of another implementation
    Given another mutating webhook on runtime "plain" rewrites image registry "europe-docker.pkg.dev" to "docker.io/mirrored"
    When the conformance of runtime "plain" to "harness/e2e/conformance/rewriting.yaml" is checked
    Then the check of conformance ends with exit code 3
    And conformance check "Pods of a Pod in a Namespace that asks for nothing come out as expected" passed
    And conformance check "The webhook is asked for Pods of statefulset" was not run

  Scenario: Another implementation that rewrites to another registry does not conform
    Given another mutating webhook on runtime "plain" rewrites image registry "europe-docker.pkg.dev" to "docker.io/elsewhere"
    When the conformance of runtime "plain" to "harness/e2e/conformance/rewriting.yaml" is checked with "--only contract --timeout 5"
    Then the check of conformance ends with exit code 3
    And conformance check "Pods of statefulset come out as expected" failed with:
      """
      found: "docker.io/elsewhere/kyma-project/prod/example:1.0.0"
      cause: "none of the webhooks that get Pods made this change"
      """
