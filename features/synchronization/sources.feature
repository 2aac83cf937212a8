Feature: A source that is not what it should be goes nowhere
  A typing error on KCP must not reach thousands of clusters.

  Background:
    Given a runtime in direct mode

  @serial
  Scenario Outline: A source becomes unusable
    When the <source> on KCP becomes <content>
    Then its condition ConfigurationSynchronized is False with the reason "<reason>"
    And the runtime is not written to
    When the <source> changes on KCP
    Then the runtime has the new <source>

    Examples:
      | source        | content                     | reason        |
      | pull Secret   | no docker configuration     | SourceInvalid |
      | configuration | a ConfigMap without the key | SourceInvalid |
      | configuration | an invalid document         | SourceInvalid |
