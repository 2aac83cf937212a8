Feature: Signals to a suspended Runtime
  KIM skips a suspended Runtime, so it stays signaled; when it is resumed, KIM writes the newest sources.

  Background:
    Given the KIM double is running
    And Runtime "two" in mode signal
    And annotation "operator.kyma-project.io/suspend-patch-reconciliation" of Runtime "two" is set to "true"

  Scenario: An update while a Runtime is suspended and signaled is synchronized when it is resumed
    When source pull Secret on KCP is updated
    Then Runtime "two" is signaled
    When source pull Secret on KCP is updated
    And annotation "operator.kyma-project.io/suspend-patch-reconciliation" of Runtime "two" is removed
    Then runtime "two" has source pull Secret of KCP
    And Runtime "two" is not signaled
