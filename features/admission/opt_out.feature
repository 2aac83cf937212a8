Feature: A Pod can opt out of the trust bundle only
  The owner of a landscape relies on its features; the trust bundle alone can be in the way of a workload.

  Scenario Outline: Annotation <feature>=false of a Pod does not override its Namespace
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/<feature>=true"
    And Pod "shop/web" with image "<image>" and annotation "rt-cfg.kyma-project.io/<feature>=false"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "<feature>"

    Examples:
      | feature             | image            |
      | alter-img-registry  | replace.me/app:1 |
      | add-img-pull-secret | private.me/app:1 |
      | set-fips-mode       | replace.me/app:1 |
      | set-landscape       | replace.me/app:1 |

  @serial
  Scenario: Annotation alter-img-registry=false of a Pod does not override the configuration
    Given Namespace "shop"
    And namespaceFeatures in the configuration is {"shop": ["rt-cfg.kyma-project.io/alter-img-registry"]}
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/alter-img-registry=false"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "alter-img-registry"

  @sample
  Scenario: A Pod opts out of the trust bundle of its Namespace
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=true"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=false"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

  @serial
  Scenario: A Pod opts out of the trust bundle of the configuration
    Given Namespace "shop"
    And namespaceFeatures in the configuration is {"shop": ["rt-cfg.kyma-project.io/add-cluster-trust-bundle"]}
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=false"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

  @serial
  Scenario: A Namespace cannot opt out of a feature that the configuration lists for it
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-cluster-trust-bundle=false"
    And namespaceFeatures in the configuration is {"shop": ["rt-cfg.kyma-project.io/add-cluster-trust-bundle"]}
    And Pod "shop/web"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "add-cluster-trust-bundle"
