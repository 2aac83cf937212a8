Feature: Pods from before a change of the trust bundle are restarted
  A process that reads the file only at its start has the old roots until then. Restarts are off by default.

  Background:
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And RoleBinding "shop/pod-restarter" exists with:
      """
      roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rt-bootstrapper-pod-restarter-role}
      subjects: [{kind: ServiceAccount, name: rt-bootstrapper-controller-manager, namespace: kyma-system}]
      """
    And component webhook runs with flags "--restart-pods-on-change=trust-bundle"
    And clusterTrustBundle in the configuration is {name: roots, certWritePath: ca.pem, volumeMountPath: /etc/ssl/certs, volumeName: roots}

  @serial @node @slow
  Scenario: A Pod that was created before the trust bundle is restarted once, also by another leader
    Given StatefulSet "shop/web" exists with:
      """
      spec:
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            terminationGracePeriodSeconds: 0
            containers: [{name: app, image: "localhost/probe:1", imagePullPolicy: IfNotPresent}]
      """
    And Pod "shop/web-0" is Running
    When ClusterTrustBundle "roots" is created with:
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
    Then Pod "shop/web-0" has annotation "rt-bootstrapper.kyma-project.io/defaulted=true"
    And Pod "shop/web-0" is Running
    When component webhook is restarted
    Then Pod "shop/web-0" is not modified for 15 seconds

  @serial @node @slow
  Scenario: A Pod that mounts the trust bundle is restarted after its content changed
    Given ClusterTrustBundle "roots" exists with:
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
    And StatefulSet "shop/web" exists with:
      """
      spec:
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            terminationGracePeriodSeconds: 0
            containers: [{name: app, image: "localhost/probe:1", imagePullPolicy: IfNotPresent}]
      """
    And Pod "shop/web-0" is Running
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
    Then Pod "shop/web-0" has Event "EvictedForRepair" with message containing "successor"
    And Pod "shop/web-0" is replaced
    And Pod "shop/web-0" is Running
