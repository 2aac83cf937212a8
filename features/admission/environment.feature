Feature: Containers get the variables of FIPS mode and of the landscape
  A module switches to certified cryptography, or to what its landscape needs, by an environment variable.

  @sample
  Scenario: Every container gets the FIPS variable
    Given Namespace "shop"
    And Pod "shop/web" with:
      """
      metadata: {annotations: {rt-cfg.kyma-project.io/set-fips-mode: "true"}}
      spec:
        initContainers:
        - {name: init, image: "replace.me/init:1"}
        - {name: sidecar, image: "replace.me/sidecar:1", restartPolicy: Always}
        containers: [{name: app}, {name: second, image: "replace.me/second:1"}]
      """
    When Pod "shop/web" is created with dry run
    Then every container of Pod "shop/web" has env "KYMA_FIPS_MODE_ENABLED=true"

  Scenario: A container that has the FIPS variable is not changed
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    And Pod "shop/web" with:
      """
      spec: {containers: [{name: app, env: [{name: KYMA_FIPS_MODE_ENABLED, value: "true"}]}]}
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

  Scenario Outline: A FIPS variable <what> is overwritten in its place
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    And Pod "shop/web" with:
      """
      spec:
        containers:
        - name: app
          env: [{name: FIRST, value: "1"}, {name: KYMA_FIPS_MODE_ENABLED, <value>}, {name: LAST, value: "1"}]
      """
    When Pod "shop/web" is created with dry run
    Then every container of Pod "shop/web" has env "KYMA_FIPS_MODE_ENABLED=true"
    And Pod "shop/web" matches:
      """
      spec: {containers: [{env: [{name: FIRST}, {name: KYMA_FIPS_MODE_ENABLED}, {name: LAST}]}]}
      """

    Examples:
      | what              | value                                                                       |
      | with value false  | value: "false"                                                              |
      | from a ConfigMap  | valueFrom: {configMapKeyRef: {name: any, key: any, optional: true}} |

  Scenario: A landscape variable with another value is overwritten in every container
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-landscape=true"
    And Pod "shop/web" with:
      """
      spec:
        initContainers: [{name: init, image: "replace.me/init:1"}]
        containers: [{name: app, env: [{name: KYMA_LANDSCAPE, value: another}]}]
      """
    When Pod "shop/web" is created with dry run
    Then every container of Pod "shop/web" has env "KYMA_LANDSCAPE=test-landscape"

  @serial
  Scenario: The configuration names further FIPS variables
    Given Namespace "shop"
    And fipsVariables in the configuration is ["KYMA_FIPS_MODE_ENABLED", "FIPS_MODE_ENABLED"]
    And Pod "shop/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When Pod "shop/web" is created with dry run
    Then every container of Pod "shop/web" has env "KYMA_FIPS_MODE_ENABLED=true"
    And every container of Pod "shop/web" has env "FIPS_MODE_ENABLED=true"
