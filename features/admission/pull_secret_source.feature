Feature: Copies follow the pull Secret in Namespace kyma-system
  Credentials are rotated in one place, and every Namespace that needs them has them a moment later.

  @serial @cluster
  Scenario: New data of the pull Secret is copied to every Namespace that needs it, a new label is not
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "shop/registry-credentials" exists
    When label "touched" of Secret "kyma-system/registry-credentials" is set to "true"
    Then Secret "shop/registry-credentials" is not modified
    When Secret "kyma-system/registry-credentials" is patched with:
      """
      stringData: {.dockerconfigjson: '{"auths":{"further.test":{"username":"u","password":"p"}}}'}
      """
    Then Secret "shop/registry-credentials" has the data of Secret "kyma-system/registry-credentials"

  @serial @cluster
  Scenario: Copies are deleted with the pull Secret and created with it
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "shop/registry-credentials" exists
    When Secret "kyma-system/registry-credentials" is deleted
    Then Secret "shop/registry-credentials" is deleted
    When Secret "kyma-system/registry-credentials" is created again
    Then Secret "shop/registry-credentials" exists

  @serial @cluster
  Scenario: Copies are deleted when the feature is removed from availableFeatures
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "shop/registry-credentials" exists
    When availableFeatures in the configuration is set to ["rt-cfg.kyma-project.io/alter-img-registry"]
    Then Secret "shop/registry-credentials" is deleted

  # A running Pod needs the Secret for its next pull, and imagePullSecrets of a Pod cannot be changed.
  @serial @cluster
  Scenario: A copy that a Pod names is kept until the Pod is deleted
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "shop/registry-credentials" exists
    And Pod "shop/web" exists with:
      """
      spec: {imagePullSecrets: [{name: registry-credentials}]}
      """
    When availableFeatures in the configuration is set to ["rt-cfg.kyma-project.io/alter-img-registry"]
    Then Secret "shop/registry-credentials" is not modified for 30 seconds
    When Pod "shop/web" is deleted
    Then Secret "shop/registry-credentials" is deleted

  @serial @cluster
  Scenario: The webhook writes copies of the pull Secret, and never the one in Namespace kyma-system
    Given Secret "kyma-system/registry-credentials" exists
    And Namespace "shop"
    And Pod "kyma-system/web" with image "private.me/app:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    When Pod "kyma-system/web" is created
    And annotation "rt-cfg.kyma-project.io/add-img-pull-secret" of Namespace "shop" is set to "true"
    Then Secret "shop/registry-credentials" exists
    And Secret "kyma-system/registry-credentials" is not modified

  @cluster
  Scenario: A Secret of a user with the name of the pull Secret is not modified
    Given Namespace "shop"
    And Secret "shop/registry-credentials" exists with:
      """
      type: Opaque
      stringData: {own: content}
      """
    And Secret "shop/registry-credentials" exists
    When annotation "rt-cfg.kyma-project.io/add-img-pull-secret" of Namespace "shop" is set to "true"
    Then Secret "shop/registry-credentials" has Event "PullSecretConflict" with message containing "delete or rename it to get the copy"
    And Secret "shop/registry-credentials" is not modified
