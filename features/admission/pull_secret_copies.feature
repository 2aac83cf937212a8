Feature: The pull Secret is copied to every Namespace that needs it
  A Pod can pull with a Secret only if the Secret is in its own Namespace.

  @cluster
  Scenario: A Namespace that opts in gets a copy of the pull Secret
    Given Namespace "shop"
    When annotation "rt-cfg.kyma-project.io/add-img-pull-secret" of Namespace "shop" is set to "true"
    Then Secret "shop/registry-credentials" has the data of Secret "kyma-system/registry-credentials"

  @cluster
  Scenario: The Namespace of a Pod that opts in gets a copy of the pull Secret
    Given Namespace "shop"
    And Pod "shop/web" with image "private.me/app:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    When Pod "shop/web" is created
    Then Secret "shop/registry-credentials" has the data of Secret "kyma-system/registry-credentials"

  @cluster
  Scenario: A Namespace that opts in to another feature gets no copy of the pull Secret until it opts in to this one
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    And Namespace "other" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "other/registry-credentials" exists
    Then Secret "shop/registry-credentials" does not exist
    When annotation "rt-cfg.kyma-project.io/add-img-pull-secret" of Namespace "shop" is set to "true"
    Then Secret "shop/registry-credentials" exists

  # A dry run has no effect outside of its response.
  @cluster
  Scenario: A Pod causes a copy of the pull Secret, but not when it is created with dry run
    Given Namespace "shop"
    And Pod "shop/web" with image "private.me/app:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" has imagePullSecrets "registry-credentials"
    And Secret "shop/registry-credentials" does not exist
    When Pod "shop/web" is created
    Then Secret "shop/registry-credentials" exists

  @cluster
  Scenario: A copy of the pull Secret is restored when its data is changed
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "shop/registry-credentials" exists
    When Secret "shop/registry-credentials" is patched with:
      """
      stringData: {.dockerconfigjson: '{"auths":{}}'}
      """
    Then Secret "shop/registry-credentials" is eventually restored

  @cluster
  Scenario: A copy of the pull Secret is restored when it is deleted
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "shop/registry-credentials" exists
    When Secret "shop/registry-credentials" is deleted
    Then Secret "shop/registry-credentials" is eventually restored

  @cluster
  Scenario: The copy of the pull Secret is deleted when the Namespace no longer opts in
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "shop/registry-credentials" exists
    When annotation "rt-cfg.kyma-project.io/add-img-pull-secret" of Namespace "shop" is removed
    Then Secret "shop/registry-credentials" is deleted
