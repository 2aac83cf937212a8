Feature: An update of a Pod changes only what the update needs
  A running Pod must not be disturbed: most of its fields are immutable, and a changed image restarts a container.

  @sample
  Scenario Outline: A new image in a Namespace with annotation all=<value> is stored as <image>
    Given Namespace "shop"
    And Pod "shop/web" exists with:
      """
      spec: {nodeSelector: {no-such-node: "true"}}
      """
    And annotation "rt-cfg.kyma-project.io/all" of Namespace "shop" is set to "<value>"
    When container "app" of Pod "shop/web" is set to image "replace.me/app:2"
    Then Pod "shop/web" differs only by field spec.containers.0.image
    And image of container "app" in Pod "shop/web" is "<image>"

    Examples:
      | value | image                              |
      | true  | registry.landscape.test:5000/app:2 |
      | false | replace.me/app:2                   |

  Scenario: A new label does not change the image of a Pod
    Given Namespace "shop"
    And Pod "shop/web" exists with:
      """
      spec: {nodeSelector: {no-such-node: "true"}, containers: [{name: app, image: "replace.me/app:1"}]}
      """
    And annotation "rt-cfg.kyma-project.io/all" of Namespace "shop" is set to "true"
    When label "edited" of Pod "shop/web" is set to "true"
    Then Pod "shop/web" differs only by field metadata.labels
    And Pod "shop/web" has label "edited=true"

  @node
  Scenario: A new label does not restart a container of a running Pod
    Given Namespace "shop"
    And Pod "shop/web" exists with:
      """
      spec: {}
      """
    And Pod "shop/web" is Running
    And annotation "rt-cfg.kyma-project.io/all" of Namespace "shop" is set to "true"
    When label "edited" of Pod "shop/web" is set to "true"
    Then Pod "shop/web" differs only by field metadata.labels
    And no container of Pod "shop/web" was restarted

  @cluster
  Scenario: A Pod that is being deleted is not mutated
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" exists with:
      """
      metadata: {finalizers: [harness.test/kept]}
      spec: {nodeSelector: {no-such-node: "true"}}
      """
    And Pod "shop/web" is deleted
    When container "app" of Pod "shop/web" is set to image "replace.me/app:2"
    Then image of container "app" in Pod "shop/web" is "replace.me/app:2"
