Feature: The API server can verify the webhook, and other clients cannot block it
  Certificates are issued and renewed without help; a Pod that is not reviewed meanwhile would be missed.

  @cluster
  Scenario Outline: A client with <tls> is accepted with HTTP/1.1
    When a client connects with TLS "<version>" and ALPN "h2, http/1.1"
    Then the connection has "<tls>" and ALPN "http/1.1"

    Examples:
      | version | tls     |
      | 1.2     | TLSv1_2 |
      | 1.3     | TLSv1_3 |

  @cluster
  Scenario: A client with HTTP/2 alone is rejected
    When a client connects with TLS "1.3" and ALPN "h2"
    Then the connection is rejected with "protocol"

  @serial @cluster
  Scenario: The webhook writes the caBundle, and nothing else, only when another client has overwritten it
    Given MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" exists
    Then MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" is not modified
    And field manager "rt-bootstrapper-webhook" owns only field "caBundle" of MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration"
    When the caBundle of the webhook is overwritten by another client
    Then MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" is eventually restored
    And the caBundle of the webhook verifies the serving certificate of every replica

  @serial @cluster
  Scenario: A new certificate is issued when the certificate Secret is deleted
    When Secret "kyma-system/rt-bootstrapper-webhook-cert" is deleted
    Then Secret "kyma-system/rt-bootstrapper-webhook-cert" is issued anew and every replica serves its certificate
    And the caBundle of the webhook verifies the serving certificate of every replica

  @serial @cluster
  Scenario: A new certificate is issued when the certificate Secret has invalid content
    When Secret "kyma-system/rt-bootstrapper-webhook-cert" is patched with:
      """
      stringData: {tls.crt: invalid, tls.key: invalid, ca.crt: invalid}
      """
    Then Secret "kyma-system/rt-bootstrapper-webhook-cert" is issued anew and every replica serves its certificate
    And the caBundle of the webhook verifies the serving certificate of every replica

  @cluster
  Scenario: A client without TLS gets an error and is disconnected
    When a client connects without TLS
    Then the connection is closed after an answer with status 400

  @cluster @slow
  Scenario: A client that does not complete the handshake is disconnected
    When a client connects and sends part of a handshake
    Then the connection is closed after no answer
