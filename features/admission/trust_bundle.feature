Feature: The trust bundle is mounted in every container
  Services of the landscape have certificates of its own authorities, which every container must be able to verify.

  @sample
  Scenario: The projected trust bundle is mounted read-only in every container
    Given Namespace "shop"
    And Pod "shop/web" with:
      """
      metadata: {annotations: {rt-cfg.kyma-project.io/add-cluster-trust-bundle: "true"}}
      spec:
        initContainers:
        - {name: init, image: "replace.me/init:1"}
        - {name: sidecar, image: "replace.me/sidecar:1", restartPolicy: Always}
        containers: [{name: app}, {name: second, image: "replace.me/second:1"}]
      """
    When Pod "shop/web" is created with dry run
    Then containers "init, sidecar, app, second" of Pod "shop/web" mount ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" at "/etc/ssl/certs"
    And Pod "shop/web" is mutated only by "add-cluster-trust-bundle"
    And Pod "shop/web" matches:
      """
      spec:
        volumes:
        - name: rt-bootstrapper-certs
          projected:
            defaultMode: 420
            sources: [{clusterTrustBundle: {name: "rt-bootstrapper-k3d.test:ctb:1", path: kube-apiserver-serving.pem}}]
      """

  Scenario: A Pod that mounts the trust bundle gets it once
    Given Namespace "shop"
    And Pod "shop/web" with image "app:1" and annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    When Pod "shop/web" is created with dry run
    And the admitted Pod "shop/web" is created again with dry run
    Then Pod "shop/web" is admitted unchanged

  Scenario: A Pod with another volume of the trust bundle's name is admitted unchanged with a warning
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And Pod "shop/web" with:
      """
      spec: {volumes: [{name: rt-bootstrapper-certs, emptyDir: {}}]}
      """
    When Pod "shop/web" is created with dry run
    Then the warning contains "another volume named rt-bootstrapper-certs"
    And Pod "shop/web" is admitted unchanged

  Scenario Outline: A container with an own mount at <path> does not get the trust bundle
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And Pod "shop/web" with:
      """
      spec:
        containers: [{name: app, volumeMounts: [{name: own, mountPath: "<path>"}]}, {name: second}]
        volumes: [{name: own, emptyDir: {}}]
      """
    When Pod "shop/web" is created with dry run
    Then the warning contains "container app: own mount or device at <path>"
    And containers "second" of Pod "shop/web" mount ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" at "/etc/ssl/certs"

    Examples:
      | path                  |
      | /etc/ssl/certs        |
      | /etc/ssl/certs/       |
      | /etc/ssl              |
      | /etc/ssl/certs/my.pem |
