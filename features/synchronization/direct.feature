Feature: In direct mode a change on KCP is on the runtime in seconds
  The controller writes the three objects itself; today's manager has no part in it.

  Background:
    Given the manager runs
    And a runtime in direct mode

  @smoke
  Scenario Outline: A source is changed
    When the <source> changes on KCP
    Then the runtime has the new <source>
    And the webhook on the runtime decides by it
    And the manager reconciled nobody

    Examples:
      | source        |
      | pull Secret   |
      | trust bundle  |
      | configuration |

  Scenario: A key that is removed on KCP goes on the runtime
    Given the configuration on KCP has a second key
    When the configuration on KCP loses its second key
    Then the runtime has the new configuration

  Scenario: Only the metadata of a source changes
    When somebody labels the pull Secret on KCP
    Then the runtime is not written to

  Scenario Outline: A source changes while the controller is down
    When the controller is down
    And the <source> changes on KCP
    And the controller is up again
    Then the runtime has the new <source>

    Examples:
      | source        |
      | pull Secret   |
      | trust bundle  |
      | configuration |
