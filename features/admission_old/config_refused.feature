Feature: Invalid configuration documents
  An invalid document is reported, and the last valid one stays active.

  @serial
  Scenario Outline: Document <document> is rejected
    When the document becomes <document>
    Then it is refused because <reason>
    And an Event "InvalidConfiguration" on its ConfigMap names the error: <reason>
    When a Pod that asks for registry rewrite is admitted
    Then only registry rewrite is applied

    Examples:
      | document                                                                                             | reason                                       |
      | {"availableFeatures": []}                                                                            | overrides: required                          |
      | {"overrides": null}                                                                                  | overrides: required                          |
      | overrides: {}                                                                                        | line 1, column 1: expected value             |
      | {"overrides": {}, "clusterTrustBundle": {"name": "a", "certWritePath": "b", "volumeName": "c"}}      | clusterTrustBundle.volumeMountPath: required |
      | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/new"]}                               | unknown feature                              |
      | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/all"]}                               | unknown feature                              |
      | {"overrides": {}, "namespaceFeatures": {"a": ["rt-cfg.kyma-project.io/new"]}}                        | unknown feature                              |
      | {"overrides": {}, "availableFeatures": ["rt-cfg.kyma-project.io/set-fips-mode"], "namespaceFeatures": {"a": ["rt-cfg.kyma-project.io/set-landscape"]}} | not in availableFeatures                     |
      | {"overrides": {"a.test": "b.test", "b.test": "a.test"}}                                              | cycle                                        |

  @serial @slow
  Scenario: Without a configuration document no replica is ready
    Given the configuration does not exist
    And the webhook is started anew
    Then no replica is ready, because "ConfigMap not found"
    And each replica serves nevertheless, and warns that "no valid configuration loaded"
