Feature: A Pod does not wait for a trust bundle that does not exist
  A volume that cannot be projected would keep the Pod from starting.

  Scenario: A container with a mount beside the trust bundle gets the trust bundle
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And Pod "shop/web" with:
      """
      spec:
        containers: [{name: app, volumeMounts: [{name: own, mountPath: /etc/ssl/certs-of-mine}]}]
        volumes: [{name: own, emptyDir: {}}]
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "add-cluster-trust-bundle"

  @serial @sample
  Scenario: A Pod is admitted unchanged with a warning while the trust bundle does not exist
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" is deleted
    When Pod "shop/web" is created with dry run
    Then the warning contains "not found"
    And Pod "shop/web" is admitted unchanged

  @serial @cluster
  Scenario: A trust bundle that is created is mounted in the next Pod
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" is deleted
    And Pod "shop/web"
    When ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" is created again
    And Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "add-cluster-trust-bundle"

  @serial
  Scenario: A Pod is admitted unchanged when the configuration has no trust bundle
    Given Namespace "shop"
    And clusterTrustBundle is absent from the configuration
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

  # Where the registry is private, the product's own images come from it too.
  @own-cluster @node
  Scenario Outline: A Pod runs without trust bundle on a cluster that does not <do> ClusterTrustBundles
    Given a runtime that does not <do> ClusterTrustBundles and pulls the webhook from the private registry
    And Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web"
    When Pod "shop/web" is created
    Then the warning contains "<warning>"
    And Pod "shop/web" is not mutated by "add-cluster-trust-bundle"
    And Pod "shop/web" is Running

    Examples:
      | do      | warning                                |
      | serve   | serves no ClusterTrustBundles          |
      | project | does not project ClusterTrustBundles   |
