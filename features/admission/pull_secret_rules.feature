Feature: The configuration and the state of the pull Secret decide which Pods get it
  The configuration document decides to which Namespaces credentials go.

  @serial @sample
  Scenario: Every Pod that opts in gets the pull Secret while its content is unknown
    Given Namespace "shop"
    And Pod "shop/web" with image "quay.io/a/b:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "kyma-system/registry-credentials" is deleted
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" has imagePullSecrets "registry-credentials"

  # The kubelet fails every pull of a Pod that names a Secret which it cannot parse.
  @serial @sample
  Scenario: A pull Secret that is not a valid docker configuration is not used in its own Namespace
    Given Pod "kyma-system/web" with image "registry.landscape.test:5000/a:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "kyma-system/registry-credentials" is patched with:
      """
      data: {.dockerconfigjson: eyJhdXRocyI6N30=} # {"auths":7}
      """
    When Pod "kyma-system/web" is created with dry run
    Then the warning contains "registry-credentials is not a valid docker configuration"
    And Pod "kyma-system/web" is admitted unchanged

  # An invalid Secret does not replace the copies.
  @serial
  Scenario: While the pull Secret is not a valid docker configuration, Pods of other Namespaces get it
    Given Namespace "shop"
    And Pod "shop/web" with image "quay.io/a/b:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    And Secret "kyma-system/registry-credentials" is patched with:
      """
      data: {.dockerconfigjson: eyJhdXRocyI6N30=} # {"auths":7}
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" has imagePullSecrets "registry-credentials"

  @serial
  Scenario Outline: With imagePullSecret <rule> a Pod of any registry gets Secret <secret>
    Given Namespace "shop"
    And imagePullSecret in the configuration is <rule>
    And Pod "shop/web" with image "quay.io/a/b:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" has imagePullSecrets "<secret>"

    Examples:
      | rule                                              | secret               |
      | {"inject": "always"}                              | registry-credentials |
      | {"inject": "always", "name": "other-credentials"} | other-credentials    |

  @serial
  Scenario: A Pod in a Namespace that the selector of the pull Secret does not match is admitted unchanged
    Given Namespace "shop"
    And imagePullSecret in the configuration is {"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}
    And Pod "shop/web" with image "registry.landscape.test:5000/a:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

  @serial
  Scenario: A Pod in a Namespace that the selector of the pull Secret matches gets it
    Given Namespace "shop" with label "trusted=yes"
    And imagePullSecret in the configuration is {"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}
    And Pod "shop/web" with image "registry.landscape.test:5000/a:1" and annotation "rt-cfg.kyma-project.io/add-img-pull-secret=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" has imagePullSecrets "registry-credentials"
