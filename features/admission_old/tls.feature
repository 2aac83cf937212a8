Feature: The API server can trust the webhook's port, and strangers cannot hold it
  Certificates come and go without anyone's help; a Pod that is not reviewed meanwhile would be missed.

  Scenario Outline: TLS <version> is spoken
    Then TLS <version> is spoken, and "http/1.1" is chosen among "h2, http/1.1"

    Examples:
      | version |
      | 1.2     |
      | 1.3     |

  Scenario: HTTP/2 is not
    Then a client that speaks "h2" alone is refused

  @serial
  Scenario: Nobody writes where nothing differs
    Then the caBundle alone is written by "rt-bootstrapper-webhook"
    And nobody writes the rules

  @serial
  Scenario: Somebody overwrites the caBundle
    When somebody overwrites the caBundle
    Then the caBundle is as it was

  @serial
  Scenario: The certificate's Secret is deleted
    When the certificate's Secret is deleted
    Then before long there is a whole Secret, and every replica shows its certificate
    And every replica shows a certificate that the caBundle verifies

  @serial
  Scenario: The certificate's Secret becomes garbage
    When the certificate's Secret becomes garbage
    Then before long there is a whole Secret, and every replica shows its certificate
    And every replica shows a certificate that the caBundle verifies

  Scenario Outline: <what>, and the connection is closed
    When a client <what>
    Then the connection is closed after "<said>"

    Examples:
      | what                                     | said |
      | speaks plain HTTP to the TLS port        | 400  |
      | begins a handshake and falls silent      |      |
