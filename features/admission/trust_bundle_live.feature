Feature: The trust bundle in a running Pod
  The webhook mounts a whole volume, so the kubelet updates the file in running containers. It rereads a bundle with a signer
  after five minutes only; the bundle here has none.

  Background:
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And ClusterTrustBundle "roots" exists with:
      """
      spec:
        trustBundle: |
          -----BEGIN CERTIFICATE-----
          MIIBeTCCAR+gAwIBAgIUfc9Sfu3RKoxlEzG3XqvAAHbMaNcwCgYIKoZIzj0EAwIw
          ETEPMA0GA1UEAwwGcm9vdC0xMCAXDTI2MTEyMjIxNDMwNFoYDzIxMjYxMDI5MjE0
          MzA0WjARMQ8wDQYDVQQDDAZyb290LTEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
          AASgTClchYNbNQuwJJtlNYKUxStq4g6GyN154Ko/bnSKHHLuA5HiCqD3fqw8c4B3
          +oni6uFueJKmEGQv8MxJmQEXo1MwUTAdBgNVHQ4EFgQU5KypaV7H0npeeR9jnJFO
          91mvipYwHwYDVR0jBBgwFoAU5KypaV7H0npeeR9jnJFO91mvipYwDwYDVR0TAQH/
          BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBePYNpaof/4NUaTmA+sD8hCWCVGSBt
          0e1Hjozk10E+aAIhAOZLS7ka83Y+pBLRLRrl49kUq4fh2pDWN+0fdkpBTbMB
          -----END CERTIFICATE-----
      """

  @serial @node
  Scenario: A running Pod reads the updated trust bundle without a restart
    Given clusterTrustBundle in the configuration is {name: roots, certWritePath: ca.pem, volumeMountPath: /etc/ssl/certs, volumeName: roots}
    And Pod "shop/web" exists with:
      """
      spec: {containers: [{name: app}]}
      """
    And Pod "shop/web" is Running
    When ClusterTrustBundle "roots" is patched with:
      """
      spec:
        trustBundle: |
          -----BEGIN CERTIFICATE-----
          MIIBeDCCAR+gAwIBAgIUFItoXJgWAFAZOWFIdCx7YS52d0kwCgYIKoZIzj0EAwIw
          ETEPMA0GA1UEAwwGcm9vdC0yMCAXDTI2MTEyMjIxNDMwNFoYDzIxMjYxMDI5MjE0
          MzA0WjARMQ8wDQYDVQQDDAZyb290LTIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
          AATYZFBXmd4dz4cm/guGha0zVuzklvUQvaBgy/IAmBQZtyPyW5HV/z+k6Z2JQUIh
          +fKRntSl3yh68Z2X7FvchIyVo1MwUTAdBgNVHQ4EFgQUL0/4QLvUNbTOOclaTxJX
          4FH5uUAwHwYDVR0jBBgwFoAUL0/4QLvUNbTOOclaTxJX4FH5uUAwDwYDVR0TAQH/
          BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBIG8lO8Fx4F9xxjFM3BohwByDtA9x5
          cNZ2oVkGItbuPwIgPDnRhj11WmXh4+6iaT/vj1T2c+YlOvY9hrU/dH1ZWbo=
          -----END CERTIFICATE-----
      """
    Then command "/probe cat /etc/ssl/certs/ca.pem" in container "app" of Pod "shop/web" prints ClusterTrustBundle "roots"
    And no container of Pod "shop/web" was restarted
