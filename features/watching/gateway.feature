Feature: Only the fleet's certificates get to KCP, and each speaks for itself
  Whoever can reach the gateway could wake every operator, or hide behind another runtime's name.

  # runtime-watcher §12 rows 21, 37
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

  # rows 34, 38: a client's own X-Forwarded-Client-Cert is replaced by what the gateway saw.
  Scenario: Another runtime claims to be this one
    When another runtime posts an event in this runtime's name
    Then it is answered 200
    And lifecycle-manager hears of it from the other runtime alone
