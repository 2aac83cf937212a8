Feature: Update of the sources while Pods are created
  Every Pod that is created during an update gets the old or the new configuration, never parts of both.

  Background:
    Given Runtime "one" in mode direct

  @node
  Scenario Outline: Every Pod is mutated while the <source> is updated
    Given Pods that opt in are created continuously on runtime "one"
    When source <source> on KCP is updated
    Then the webhook on runtime "one" uses source <source>
    And every created Pod is mutated
    And every created Pod mounts the ClusterTrustBundle

    Examples:
      | source             |
      | pull Secret        |
      | ClusterTrustBundle |
      | ConfigMap          |

  # The new pull Secret has credentials for the registry of the old and of the new configuration.
  @node
  Scenario: No Pod gets parts of two revisions while all sources are updated together
    When all sources on KCP are updated
    Then the webhook on runtime "one" uses all sources
    Given Pods that opt in are created continuously on runtime "one"
    When all sources on KCP are updated
    Then the webhook on runtime "one" uses all sources
    And every created Pod is mutated
    And every created Pod has the image and the pull Secret of one revision

  @node
  Scenario: A running Pod is not restarted while all sources are updated
    Given Pods that opt in are created continuously on runtime "one"
    And Pod "running" that opts in runs on runtime "one"
    When all sources on KCP are updated
    Then the webhook on runtime "one" uses all sources
    And Pod "running" on runtime "one" was not restarted
    And every created Pod is mutated
