Feature: A custom resource is the webhook's life on a runtime
  Whoever runs a landscape installs, watches and removes the webhook by one object on KCP.

  @node @smoke
  Scenario: Creating it installs the webhook
    Given a runtime without a webhook
    When a RuntimeBootstrapper is created for it
    Then it becomes Ready
    And a Pod that opts in on the runtime carries the marker
    And its status names the webhook's version, its ready replicas and the three hashes

  @node
  Scenario: Deleting it removes the webhook, first of all its configuration
    Given a runtime whose webhook a RuntimeBootstrapper installed
    When its RuntimeBootstrapper is deleted
    Then the webhook configuration goes before the webhook
    And the RuntimeBootstrapper is gone

  @node
  Scenario: A deleted RuntimeBootstrapper leaves the objects of the runtime as they were before it
    Given a runtime without a webhook
    And a Namespace of the runtime opts in to the pull Secret
    And the objects of the runtime are recorded
    And a RuntimeBootstrapper installed the webhook and its copy of the pull Secret
    When its RuntimeBootstrapper is deleted
    Then the RuntimeBootstrapper is gone
    And nothing of ours is left on the runtime

  @node
  Scenario: Its status follows the webhook
    Given a runtime in direct mode
    When its RuntimeBootstrapper asks for an image that never starts
    Then its condition Installed is False with the reason "ProgressDeadlineExceeded"
    And its condition Ready is False with the reason "ProgressDeadlineExceeded"
    When its RuntimeBootstrapper asks for no image of its own
    Then it becomes Ready

  Scenario Outline: A RuntimeBootstrapper that cannot be is refused by the API server
    When a RuntimeBootstrapper with <mistake> is created
    Then the API server refuses it, naming "<field>"

    Examples:
      | mistake                         | field                |
      | an empty image                  | spec.webhook.image   |
      | an image without a tag          | spec.webhook.image   |
      | an unknown deletion policy      | spec.deletionPolicy  |
      | a name that no Runtime can have | at most 63           |

  Scenario: Its Runtime does not exist
    When a RuntimeBootstrapper is created for a Runtime that does not exist
    Then its condition Reachable is False with the reason "RuntimeNotFound"
    When its RuntimeBootstrapper is deleted
    Then the RuntimeBootstrapper is gone

  Scenario: Today's manager is stopped, and everything converges
    Given the manager is stopped
    And a runtime in direct mode
    When the three sources change on KCP
    Then the runtime has the three sources of KCP
    And the webhook on the runtime decides by them
