Feature: A feature is applied to a Pod that opts in, and to no other
  A Pod, its Namespace or the configuration can opt in; one of the three is enough.

  @sample
  Scenario Outline: A Pod with annotation <feature>=true is mutated only by this feature
    Given Namespace "shop"
    And Pod "shop/web" with image "<image>" and annotation "rt-cfg.kyma-project.io/<feature>=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "<feature>"

    Examples:
      | feature                  | image            |
      | alter-img-registry       | replace.me/app:1 |
      | add-img-pull-secret      | private.me/app:1 |
      | add-cluster-trust-bundle | replace.me/app:1 |
      | set-fips-mode            | replace.me/app:1 |
      | set-landscape            | replace.me/app:1 |

  Scenario Outline: A Namespace with annotation <feature>=true opts in for its Pods
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/<feature>=true"
    And Pod "shop/web" with image "<image>"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "<feature>"

    Examples:
      | feature                  | image            |
      | alter-img-registry       | replace.me/app:1 |
      | add-img-pull-secret      | private.me/app:1 |
      | add-cluster-trust-bundle | replace.me/app:1 |
      | set-fips-mode            | replace.me/app:1 |
      | set-landscape            | replace.me/app:1 |

  @serial
  Scenario Outline: The configuration opts in to <feature> for a Namespace
    Given Namespace "shop"
    And namespaceFeatures in the configuration is {"shop": ["rt-cfg.kyma-project.io/<feature>"]}
    And Pod "shop/web" with image "replace.me/app:1"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "<feature>"

    Examples:
      | feature                  |
      | alter-img-registry       |
      | add-cluster-trust-bundle |

  Scenario Outline: Annotation value "<value>" does not opt in
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/set-fips-mode=<value>"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

    Examples:
      | value |
      | True  |
      | 1     |
      | yes   |
      |       |

  @sample
  Scenario: A Pod is admitted unchanged and without warning when nothing opts in
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1"
    When Pod "shop/web" is created with dry run
    Then there is no warning
    And Pod "shop/web" has no annotation "rt-bootstrapper.kyma-project.io/defaulted"
    And Pod "shop/web" is admitted unchanged
