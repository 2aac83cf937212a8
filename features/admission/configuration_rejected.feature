Feature: An invalid configuration is reported, and the last valid one stays active
  A mistake in the document must neither stop the webhook nor go unnoticed.

  Background:
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/alter-img-registry=true"

  @serial @cluster
  Scenario Outline: A configuration with <what> is rejected
    When the configuration document is:
      """
      <document>
      """
    Then the configuration is rejected with "<reason>"
    And ConfigMap "kyma-system/rt-bootstrapper-config" has Event "InvalidConfiguration" with message containing "<reason>"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "alter-img-registry"

    Examples:
      | what                                | document                                                                                        | reason                                       |
      | no overrides                        | {"availableFeatures": []}                                                                       | overrides: required                          |
      | null overrides                      | {"overrides": null}                                                                             | overrides: required                          |
      | YAML                                | overrides: {}                                                                                   | line 1, column 1: expected value             |
      | an incomplete trust bundle          | {"overrides": {}, "clusterTrustBundle": {"name": "a", "certWritePath": "b", "volumeName": "c"}} | clusterTrustBundle.volumeMountPath: required |
      | an unknown feature in availableFeatures | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/new"]}                      | unknown feature                              |
      | "all" in availableFeatures          | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/all"]}                          | unknown feature                              |
      | an unknown feature in namespaceFeatures | {"overrides": {}, "namespaceFeatures": {"a": ["rt-cfg.kyma-project.io/new"]}}               | unknown feature                              |
      | a feature that is not available     | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/set-fips-mode"], "namespaceFeatures": {"a": ["rt-cfg.kyma-project.io/set-landscape"]}} | not in availableFeatures |
      | a cycle of overrides                | {"overrides": {"a.test": "b.test", "b.test": "a.test"}}                                         | cycle                                        |

  @serial @slow @cluster
  Scenario: A webhook that starts with an invalid configuration uses the last valid one
    When the configuration document is:
      """
      {"overrides": null}
      """
    And component webhook is stopped
    And component webhook is started
    And Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "alter-img-registry"

  @serial @slow @cluster
  Scenario: Without a configuration the webhook is not ready and admits every Pod unchanged
    Given ConfigMap "kyma-system/rt-bootstrapper-config" is deleted
    When component webhook is restarted
    Then component webhook reports readiness false with message "ConfigMap not found"
    And every replica of component webhook admits a Pod unchanged with warning "no valid configuration loaded"
    And metric "admission_internal_errors_total ConfigurationNotLoaded" of component webhook is at least 1
