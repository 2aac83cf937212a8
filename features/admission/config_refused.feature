Feature: A broken configuration changes nothing
  Whoever breaks the document is told so, and Pods go on being changed by the last good one.

  @serial
  Scenario Outline: <document>
    When the document becomes <document>
    Then it is refused because <reason>
    And an Event "InvalidConfiguration" on its ConfigMap names the error: <reason>
    When a Pod that asks for registry rewrite is admitted
    Then only registry rewrite is applied

    Examples:
      | document                                                                                             | reason                             |
      | {"availableFeatures": []}                                                                            | `overrides` is missing             |
      | {"overrides": null}                                                                                  | `overrides` is missing             |
      | overrides: {}                                                                                        | cannot be read as JSON             |
      | {"overrides": {}, "clusterTrustBundle": {"name": "a", "certWritePath": "b", "volumeName": "c"}}      | `clusterTrustBundle.volumeMountPath` is missing |
      | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/new"]}                               | unknown feature                    |
      | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/all"]}                               | unknown feature                    |
      | {"overrides": {}, "namespaceFeatures": {"a": ["rt-cfg.kyma-project.io/new"]}}                        | unknown feature                    |
      | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/set-fips-mode"], "namespaceFeatures": {"a": ["rt-cfg.kyma-project.io/set-landscape"]}} | not in availableFeatures |
      | {"overrides": {"a.test": "b.test", "b.test": "a.test"}}                                              | cycle                              |

  @serial @slow
  Scenario: There is no document at all
    Given the configuration does not exist
    And the webhook is started anew
    Then no replica is ready, because "ConfigMap not found"
    And each replica serves nevertheless, and warns that "no valid configuration loaded"
