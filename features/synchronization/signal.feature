Feature: A change on KCP makes today's manager reconcile
  An operator changes a source once; every runtime that it concerns is reconciled, and nobody else.

  Background:
    Given the manager runs

  @smoke
  Scenario Outline: A source is changed
    Given the manager obeys the <key>
    And a runtime kept by signals
    When the <source> changes on KCP
    Then the manager reconciles the runtime
    And the runtime has the new <source>
    And nothing of the signal is left

    Examples:
      | source        | key        |
      | pull Secret   | label      |
      | pull Secret   | annotation |
      | trust bundle  | label      |
      | trust bundle  | annotation |
      | configuration | label      |
      | configuration | annotation |

  Scenario: Only the metadata of a source changes
    Given a runtime kept by signals
    When somebody labels the pull Secret on KCP
    Then the manager reconciles nobody

  Scenario: A source becomes unusable
    Given a runtime kept by signals
    When the configuration on KCP becomes an invalid document
    Then the manager reconciles nobody

  Scenario: A neighbour of the sources changes
    Given a runtime kept by signals
    When another Secret changes on KCP
    Then the manager reconciles nobody

  Scenario: A change that comes while a signal stands is not lost
    Given a runtime kept by signals
    And the manager is slow
    When the pull Secret changes on KCP
    And the pull Secret changes on KCP again before the manager took the signal
    Then the manager reconciles the runtime
    And the runtime has the new pull Secret
    And nothing of the signal is left
