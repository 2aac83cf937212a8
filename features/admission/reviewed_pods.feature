Feature: Which Pods are reviewed
  Neither a stale annotation nor a label of the product exempts a Pod of a user.

  Scenario: A Pod that already has the annotation "defaulted" is still mutated
    Given Namespace "shop"
    And Pod "shop/web" with:
      """
      metadata:
        annotations:
          rt-bootstrapper.kyma-project.io/defaulted: "true"
          rt-cfg.kyma-project.io/set-fips-mode: "true"
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is mutated only by "set-fips-mode"

  @cluster
  Scenario Outline: A Pod with the webhook's own label is <result> in Namespace <namespace>
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    And Pod "<namespace>/web" with:
      """
      metadata:
        annotations: {rt-cfg.kyma-project.io/set-fips-mode: "true"}
        labels: {app.kubernetes.io/name: rt-bootstrapper}
      """
    When Pod "<namespace>/web" is created with dry run
    Then Pod "<namespace>/web" <check>

    Examples:
      | namespace   | result   | check                           |
      | shop        | mutated  | is mutated only by "set-fips-mode" |
      | kyma-system | exempted | is admitted without review      |

  @cluster
  Scenario: A Pod without the webhook's own label is mutated in Namespace kyma-system
    Given Pod "kyma-system/web" with image "replace.me/app:1" and annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When Pod "kyma-system/web" is created with dry run
    Then Pod "kyma-system/web" is mutated only by "set-fips-mode"

  # The API server accepts a mirror Pod only from the node that it names.
  Scenario: A mirror Pod is admitted unchanged
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" with:
      """
      metadata: {annotations: {kubernetes.io/config.mirror: a-hash}}
      spec: {nodeName: any-node, containers: [{name: app, image: "replace.me/app:1"}]}
      """
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged
