Feature: A runtime moves between the two modes, and no Pod notices
  Migration is a label; while it happens there is always exactly one webhook.

  Background:
    Given the manager runs
    And a runtime on which the manager installed the webhook

  @node @slow
  Scenario: There and back, with Pods created all the while
    Given Pods that opt in are created on the runtime all the while
    When the Runtime is labelled for direct mode
    Then it becomes Ready
    When the Runtime is labelled for signals
    Then the runtime is handed back
    And every Pod was admitted and carries the marker
    And there was one webhook all the while, never another

  @node
  Scenario: What the manager installed is taken over
    When the Runtime is labelled for direct mode
    Then it becomes Ready
    And the objects have no field of the manager any more
    And the webhook's Pods are still those of the manager

  @node @slow
  Scenario: After the way back signals hold again
    When the Runtime is labelled for direct mode
    Then it becomes Ready
    When the Runtime is labelled for signals
    Then the runtime is handed back
    When the pull Secret changes on KCP
    Then the manager reconciles the runtime
    And the runtime has the new pull Secret

  @node @slow
  Scenario: A change that comes on the way back is brought by the manager
    Given the Runtime has moved to direct mode
    When its cluster is away
    And the Runtime is labelled for signals
    And the pull Secret changes on KCP
    And its cluster is back
    Then the manager reconciles the runtime
    And the runtime has the new pull Secret
