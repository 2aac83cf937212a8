Feature: A new configuration is active for the next Pod without a restart
  The owner of a landscape edits one document, and nothing has to be restarted.

  @serial @sample
  Scenario Outline: A configuration without availableFeatures (<case>) applies no feature
    Given Namespace "shop"
    And the configuration is <document>
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/all=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

    Examples:
      | case                          | document                                                                                                  |
      | overrides only                | {"overrides": {}}                                                                                         |
      | an unknown key                | {"overrides": {"replace.me": "a.test"}, "unknown": "value"}                                               |
      | namespaceFeatures of one      | {"overrides": {"replace.me": "a.test"}, "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/set-fips-mode"]}} |
      | namespaceFeatures with "all"  | {"overrides": {"replace.me": "a.test"}, "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]}}    |

  @serial @sample
  Scenario: New overrides are active for the next Pod
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/alter-img-registry=true"
    And Pod "shop/web" with image "replace.me/app:1"
    When overrides in the configuration is set to {"replace.me": "new.test/path"}
    And Pod "shop/web" is created with dry run
    Then image of container "app" in Pod "shop/web" is "new.test/path/app:1"
    And no replica of component webhook was restarted

  @serial
  Scenario: New namespaceFeatures are active for the next Pod
    Given Namespace "shop"
    And namespaceFeatures in the configuration is {"shop": ["rt-cfg.kyma-project.io/alter-img-registry"]}
    And Pod "shop/web" with image "replace.me/app:1"
    When namespaceFeatures in the configuration is set to {"shop": ["rt-cfg.kyma-project.io/set-fips-mode"]}
    And Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "set-fips-mode"

  @serial @sample
  Scenario: A feature that is removed from availableFeatures is not applied to the next Pod
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" with image "replace.me/app:1"
    When availableFeatures in the configuration is set to ["rt-cfg.kyma-project.io/alter-img-registry"]
    And Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "alter-img-registry"
    And no replica of component webhook was restarted

  @serial @slow @cluster
  Scenario: A Pod is admitted unchanged with a warning when the webhook has no flag landscape
    Given component webhook runs without flag "landscape"
    And Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/set-landscape=true"
    When Pod "shop/web" is created with dry run
    Then the warning contains "without --landscape"
    And Pod "shop/web" is admitted unchanged
