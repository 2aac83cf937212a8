Feature: Pause and limits of signals
  Signals stop while an operator pauses them, and while KIM has not acknowledged 50 of them.

  Scenario: No Runtime is signaled while signals are paused
    Given Runtime "a" in mode signal without a cluster
    When RuntimeBootstrapperRollout "kcp-system/signal" is patched with:
      """
      spec: {paused: true}
      """
    Then RuntimeBootstrapperRollout "kcp-system/signal" has condition Stopped=True with reason "Paused"
    When source pull Secret on KCP is updated
    Then Runtime "a" is not modified
    When RuntimeBootstrapperRollout "kcp-system/signal" is patched with:
      """
      spec: {paused: false}
      """
    Then Runtime "a" is signaled

  Scenario: Signals stop when KIM acknowledges none of them
    Given 60 Runtimes in mode signal without a cluster
    When source pull Secret on KCP is updated
    Then RuntimeBootstrapperRollout "kcp-system/signal" has condition Stopped=True with reason "UnacknowledgedLimitReached" and message containing "50"
    And ConfigMap "kcp-system/rt-bootstrapper-signal-state" has Event "SignalsSuspended" with message containing "UnacknowledgedLimitReached"
