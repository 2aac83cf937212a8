Feature: An upgrade goes out in waves and stops when it fails
  The first runtimes pay for a broken version, so they are few, and the others keep what works.

  @node
  Scenario: A wave that fails stops the rest
    Given two runtimes in direct mode, one in the wave before the other
    When a version of the webhook that never starts is rolled out
    Then the first one's condition Installed is False with the reason "ProgressDeadlineExceeded"
    And the rollout has stopped, for "budgetSpent"
    And the other one is not written to
    When a version of the webhook that works is rolled out
    Then both become Ready

  Scenario: A paused rollout goes no further
    Given a runtime in direct mode
    When an operator pauses the rollout
    And the pull Secret changes on KCP
    Then its condition ConfigurationSynchronized is False with the reason "RolloutPending"
    And the runtime is not written to
    When an operator resumes the rollout
    Then the runtime has the new pull Secret

  Scenario: A pause outlives the controller that saw it
    Given a runtime in direct mode
    When an operator pauses the rollout
    And the controller is down
    And the pull Secret changes on KCP
    And the controller is up again
    Then its condition ConfigurationSynchronized is False with the reason "RolloutPending"
    And the runtime is not written to
