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

  # The gateway replaces a header X-Forwarded-Client-Cert that a client sends. Behind it, Envoy as a sidecar appends an element.
  Scenario Outline: An event for <manager> with a forged client certificate header counts for the runtime of the connection
    Given Namespace "shop"
    When a client with "the certificate of another runtime" posts an event for Kyma "shop/app" to manager "<manager>" through the gateway
    Then manager "<manager>" receives an event for Kyma "shop/app" from the other runtime only

    Examples:
      | manager           |
      | lifecycle-manager |
      | sidecar-manager   |

  Scenario: An event through a sidecar of the listener counts for the runtime of the watcher
    Given Watcher "sidecars" for configmaps with field spec and manager "sidecar-manager"
    And Namespace "shop"
    When ConfigMap "shop/app" is created with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: sidecar}}
      """
    Then manager "sidecar-manager" receives an event for ConfigMap "shop/app"
    And manager "module-manager" receives no event for ConfigMap "shop/app"
