Feature: A landscape owner checks KCP and its runtimes
  `cargo harness conformance` runs as a process with an empty environment, which has the scenario file and kubeconfigs.

  Scenario: KCP and two runtimes conform
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    And Runtime "two" in mode direct whose Kyma has module "pause" and is Ready
    Then RuntimeBootstrapper "two" has condition WatcherInstalled=True
    When the conformance of KCP and of runtimes "one" and "two" to "harness/e2e/flow/landscape.yaml" is checked
    Then the check of conformance ends with exit code 0
    And conformance check "The pull Secret on the runtime is that of KCP" passed
    And conformance check "Change "spec of a Kyma" is reported to KCP" passed
