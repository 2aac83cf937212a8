Feature: What today's manager makes of the sources
  It copies all three as they are and looks at none of them, so a signal waits while one cannot be used.

  Background:
    Given the manager runs

  Scenario Outline: A source changes while another cannot be used
    Given a runtime kept by signals
    When the <broken> on KCP becomes <content>
    And the <source> changes on KCP
    Then the manager reconciles nobody
    When the <broken> changes on KCP
    Then the manager reconciles the runtime
    And the runtime has the new <source>

    Examples:
      | broken        | content                 | source       |
      | configuration | an invalid document     | pull Secret  |
      | pull Secret   | no docker configuration | trust bundle |
