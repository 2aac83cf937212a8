Feature: The registry is replaced in every container and image volume of a Pod
  An init container whose image cannot be pulled stops a Pod as surely as any other container.

  @sample
  Scenario: Images of containers, init containers and sidecars are rewritten
    Given Namespace "shop"
    And Pod "shop/web" with:
      """
      metadata: {annotations: {rt-cfg.kyma-project.io/alter-img-registry: "true"}}
      spec:
        initContainers:
        - {name: init, image: "replace.me/init:1"}
        - {name: sidecar, image: "replace.me/sidecar:1", restartPolicy: Always}
        containers:
        - {name: app, image: "replace.me/app:1"}
        - {name: second, image: "ghcr.io/second:1"}
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" matches:
      """
      spec:
        initContainers:
        - {name: init, image: "registry.landscape.test:5000/init:1"}
        - {name: sidecar, image: "registry.landscape.test:5000/sidecar:1"}
        containers:
        - {name: app, image: "registry.landscape.test:5000/app:1"}
        - {name: second, image: "ghcr.io/second:1"}
      """

  Scenario: The image of an ephemeral container is rewritten
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/alter-img-registry=true"
    When Pod "shop/web" is created
    And an ephemeral container "debugger" with image "replace.me/tools:1" is added to Pod "shop/web"
    Then image of container "app" in Pod "shop/web" is "registry.landscape.test:5000/app:1"
    And image of container "debugger" in Pod "shop/web" is "registry.landscape.test:5000/tools:1"

  Scenario: An image that is not a valid reference is not rewritten and causes a warning
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/UPPER:1" and annotation "rt-cfg.kyma-project.io/alter-img-registry=true"
    When Pod "shop/web" is created with dry run
    Then the warning contains "is not a valid image reference"
    And Pod "shop/web" is admitted unchanged

  Scenario: The image of an image volume is rewritten and gets the pull Secret
    Given Namespace "shop"
    And Pod "shop/web" with:
      """
      metadata:
        annotations:
          rt-cfg.kyma-project.io/alter-img-registry: "true"
          rt-cfg.kyma-project.io/add-img-pull-secret: "true"
      spec:
        containers: [{name: app, image: "quay.io/app:1"}]
        volumes: [{name: model, image: {reference: "replace.me/model:1"}}]
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" matches:
      """
      spec: {volumes: [{name: model, image: {reference: "registry.landscape.test:5000/model:1"}}]}
      """
    And Pod "shop/web" has imagePullSecrets "registry-credentials"
