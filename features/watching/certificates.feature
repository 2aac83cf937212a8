Feature: Rotation of certificates
  The CA and all certificates of both sides are replaced while events are delivered, without a restart and without a loss.

  @serial
  Scenario: No event is lost while the CA of both sides is rotated
    Given Namespace "shop"
    And Kymas are created continuously in Namespace "shop"
    When the CA of both sides is rotated
    Then manager "lifecycle-manager" receives an event for each of the created Kymas
    And the API server got an answer to every AdmissionReview
    And metric "listener.ssl.handshake_errors" of the gateway increases by 0
    And no replica of component watcher was restarted
