Feature: A Pod gets the pull Secret when its registry needs credentials
  Credentials belong to Pods that can use them; a Pod without them cannot be repaired later.

  @sample
  Scenario Outline: A Pod of <what> gets the pull Secret
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Pod "shop/web" with:
      """
      metadata: {annotations: {rt-cfg.kyma-project.io/alter-img-registry: "<rewrite>"}}
      spec:
        initContainers: [{name: init, image: "<init>"}]
        containers: [{name: app, image: "<app>"}]
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" has imagePullSecrets "registry-credentials"
    And Pod "shop/web" has annotation "rt-bootstrapper.kyma-project.io/defaulted=true"

    Examples:
      | what                                            | rewrite | init                             | app                              |
      | a registry with credentials                     | false   | quay.io/init:1                   | registry.landscape.test:5000/a:1 |
      | an image that is rewritten to such a registry   | true    | quay.io/init:1                   | replace.me/app:1                 |
      | an init container of a registry with credentials | false  | registry.landscape.test:5000/a:1 | ghcr.io.example.org/app:1        |

  Scenario: A Pod of a registry without credentials is admitted unchanged
    Given Namespace "shop"
    And Pod "shop/web" with image "quay.io/a/b:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

  Scenario: The pull Secret is appended to imagePullSecrets of the Pod
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Pod "shop/web" with:
      """
      spec:
        imagePullSecrets: [{name: own-credentials}]
        containers: [{name: app, image: "registry.landscape.test:5000/a:1"}]
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" has imagePullSecrets "own-credentials, registry-credentials"

  Scenario: A Pod that names the pull Secret is admitted unchanged
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Pod "shop/web" with:
      """
      spec:
        imagePullSecrets: [{name: registry-credentials}]
        containers: [{name: app, image: "registry.landscape.test:5000/a:1"}]
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

  # imagePullSecrets of a Pod cannot be changed, so its author has to create it again.
  @sample
  Scenario: A new image of a registry with credentials causes a warning when the Pod does not name the pull Secret
    Given Namespace "shop"
    And Pod "shop/web" exists with:
      """
      spec: {nodeSelector: {no-such-node: "true"}}
      """
    And annotation "rt-cfg.kyma-project.io/all" of Namespace "shop" is set to "true"
    When container "app" of Pod "shop/web" is set to image "replace.me/app:2"
    Then image of container "app" in Pod "shop/web" is "registry.landscape.test:5000/app:2"
    And the warning contains "the stored Pod does not name registry-credentials"
