Feature: Annotation "all" opts in to every feature
  One annotation is enough for a workload that wants everything, except what the same annotations exclude.

  @sample
  Scenario: A Namespace with annotation all=true opts in to every feature
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" with image "replace.me/app:1"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "all"

  Scenario Outline: Annotation all=<value> does not opt in
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/all=<value>"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

    Examples:
      | value |
      | false |
      | TRUE  |

  Scenario: A Pod opts in to all features but one
    Given Namespace "shop"
    And Pod "shop/web" with:
      """
      metadata:
        annotations: {rt-cfg.kyma-project.io/all: "true", rt-cfg.kyma-project.io/set-fips-mode: "false"}
      spec: {containers: [{name: app, image: "replace.me/app:1"}]}
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated by "alter-img-registry, add-img-pull-secret, add-cluster-trust-bundle, set-landscape"
    And Pod "shop/web" is not mutated by "set-fips-mode"

  Scenario: The Namespace opts in to a feature that the Pod excludes from its own "all"
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    And Pod "shop/web" with:
      """
      metadata:
        annotations: {rt-cfg.kyma-project.io/all: "true", rt-cfg.kyma-project.io/set-fips-mode: "false"}
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated by "set-fips-mode"

  Scenario: A Pod that was mutated once is not mutated again
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" with:
      """
      spec:
        initContainers:
        - {name: init, image: nginx}
        - {name: sidecar, image: "docker.io/bitnami/redis:7", restartPolicy: Always}
        containers: [{name: app, image: "replace.me/app:1"}]
      """
    When Pod "shop/web" is created with dry run
    And the admitted Pod "shop/web" is created again with dry run
    Then Pod "shop/web" is admitted unchanged
