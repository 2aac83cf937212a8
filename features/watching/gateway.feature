Feature: Only the fleet's certificates get to KCP, and each speaks for itself
  Whoever can reach the gateway could wake every operator, or hide behind another runtime's name.

  Scenario Outline: A client with <what>
    When a client with <what> comes to the gateway
    Then the gateway refuses the handshake with "<alert>"

    Examples:
      | what                               | alert               |
      | no certificate                     | CertificateRequired |
      | a certificate of another authority | UnknownCA           |
      | an expired certificate             | CertificateExpired  |
      | a certificate of tomorrow          | CertificateExpired  |
      | TLS 1.2 alone                      | ProtocolVersion     |

  # The gateway replaces an X-Forwarded-Client-Cert header that a client sends.
  Scenario: Another runtime claims to be this one
    When another runtime posts an event in this runtime's name
    Then it is answered 200
    And lifecycle-manager hears of it from the other runtime alone
