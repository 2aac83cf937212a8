Feature: Authentication of watchers
  The gateway accepts certificates of the fleet only, and an event counts for the runtime in the certificate.

  @serial
  Scenario Outline: A client with <certificate> is rejected by the gateway
    When a client with "<certificate>" posts to the gateway
    Then the connection is rejected with "<alert>"
    And metric "listener.ssl.handshake_errors" of the gateway increases by at least 1

    Examples:
      | certificate                         | alert               |
      | no certificate                      | CertificateRequired |
      | a certificate of another CA         | UnknownCA           |
      | an expired certificate              | CertificateExpired  |
      | a certificate that is not valid yet | CertificateExpired  |
      | TLS 1.2 only                        | ProtocolVersion     |

  # The gateway replaces a header X-Forwarded-Client-Cert that a client sends.
  Scenario: An event with a forged client certificate header counts for the runtime of the connection
    Given Namespace "shop"
    When a client with "the certificate of another runtime" posts an event for Kyma "shop/app" to the gateway
    Then manager "lifecycle-manager" receives an event for Kyma "shop/app" from the other runtime only
