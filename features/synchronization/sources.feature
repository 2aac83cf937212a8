Feature: Invalid sources
  A typing error on KCP does not reach any runtime.

  Background:
    Given a runtime in direct mode

  Scenario Outline: A <source> that becomes <content> is not synchronized
    When the <source> on KCP becomes <content>
    Then its condition ConfigurationSynchronized is False with the reason "InvalidSource", naming "<fault>"
    And the runtime is not written to
    When the <source> changes on KCP
    Then the runtime has the new <source>

    Examples:
      | source        | content                     | fault              |
      | pull Secret   | no docker configuration     | expected an object |
      | configuration | a ConfigMap without the key | missing or empty   |
      | configuration | an invalid document         | expected a mapping |

  # The type of a Secret cannot be changed in place.
  Scenario: A Secret of another type is not synchronized
    When the pull Secret is deleted on KCP
    And the pull Secret on KCP becomes a Secret of another type
    Then its condition ConfigurationSynchronized is False with the reason "InvalidSource", naming "Opaque"
    And the runtime is not written to

  Scenario: A trust bundle that is not PEM is rejected by the API server
    When somebody writes a trust bundle to KCP that is no PEM
    Then the API server refuses it, naming "spec.trustBundle"
    And the runtime is not written to

  Scenario: A source that never existed
    Given the controller never knew a trust bundle
    When the configuration changes on KCP
    Then the runtime has the new configuration
    And the runtime keeps its trust bundle
    And its condition ConfigurationSynchronized is False with the reason "SourceNotFound", naming "ClusterTrustBundle"

  Scenario: A source that is deleted by mistake and created again is not taken from the runtime
    When the pull Secret is deleted on KCP
    Then its condition ConfigurationSynchronized is False with the reason "DeletionPending", naming "Secret kcp-system/"
    And the runtime is not written to
    When the pull Secret is created on KCP
    Then the runtime has the new pull Secret
