Feature: Signals go to whom they concern and touch nothing else
  A Runtime is another team's object: one key of it is ours, for a moment.

  Scenario: Nothing but the signal is written
    Given a Runtime without a cluster
    When the pull Secret changes on KCP
    Then the Runtime carries the signal
    And its spec, status, generation and other keys are as before

  Scenario: A Runtime that carries the signal already is not written again
    Given a Runtime without a cluster that carries the signal
    When the pull Secret changes on KCP
    Then the Runtime is not written

  Scenario: A Runtime that is going away is left alone
    Given a Runtime without a cluster that is being deleted
    When the pull Secret changes on KCP
    Then the Runtime is not written

  Scenario: A Runtime in direct mode is never signalled
    Given a Runtime without a cluster in direct mode
    When the pull Secret changes on KCP
    Then the Runtime carries no signal

  Scenario: A suspended Runtime keeps the signal until it is resumed
    Given the manager runs
    And a runtime kept by signals
    When an operator suspends the Runtime
    And the pull Secret changes on KCP
    Then the Runtime carries the signal
    When an operator resumes the Runtime
    Then the runtime has the new pull Secret

  Scenario: With signals alone the controller may not read a kubeconfig
    When the controller runs with signals alone
    Then its account may not read the kubeconfig of any runtime
