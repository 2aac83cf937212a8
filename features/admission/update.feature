Feature: An update of a Pod changes only what the update needs
  A running Pod must not be disturbed: most of its fields are immutable, and a changed image restarts a container.

  @sample
  Scenario: A new image in a Namespace that opts in is rewritten, and no other field is changed
    Given Namespace "shop"
    And Pod "shop/web" exists with:
      """
      spec: {nodeSelector: {no-such-node: "true"}}
      """
    And annotation "rt-cfg.kyma-project.io/all" of Namespace "shop" is set to "true"
    When container "app" of Pod "shop/web" is set to image "replace.me/app:2"
    Then Pod "shop/web" differs only by field spec.containers.0.image
    And image of container "app" in Pod "shop/web" is "registry.landscape.test:5000/app:2"

  @sample
  Scenario: A new image is rewritten only after the Namespace opts in
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=false"
    And Pod "shop/web" exists with:
      """
      spec: {nodeSelector: {no-such-node: "true"}}
      """
    When container "app" of Pod "shop/web" is set to image "replace.me/app:2"
    Then image of container "app" in Pod "shop/web" is "replace.me/app:2"
    When annotation "rt-cfg.kyma-project.io/all" of Namespace "shop" is set to "true"
    And container "app" of Pod "shop/web" is set to image "replace.me/app:3"
    Then image of container "app" in Pod "shop/web" is "registry.landscape.test:5000/app:3"

  # In process, where updates without a change of the spec are reviewed too.
  Scenario: A new label does not change the image of a Pod
    Given Namespace "shop"
    And Pod "shop/web" exists with:
      """
      spec: {containers: [{name: app, image: "replace.me/app:1"}]}
      """
    And annotation "rt-cfg.kyma-project.io/all" of Namespace "shop" is set to "true"
    When label "edited" of Pod "shop/web" is set to "true"
    Then Pod "shop/web" differs only by field metadata.labels

  # Each review of the Pod would give the warning.
  @serial @cluster
  Scenario: An update of a Pod is not reviewed unless it changes the spec
    Given Namespace "shop"
    And Pod "shop/web" exists with:
      """
      metadata: {annotations: {rt-cfg.kyma-project.io/alter-img-registry: "true"}}
      spec: {nodeSelector: {no-such-node: "true"}}
      """
    And availableFeatures in the configuration is []
    When label "edited" of Pod "shop/web" is set to "true"
    Then there is no warning
    When container "app" of Pod "shop/web" is set to image "replace.me/app:2"
    Then the warning contains "not in availableFeatures"

  @cluster
  Scenario: A Pod that is being deleted is not mutated
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" exists with:
      """
      metadata: {finalizers: [harness.test/kept]}
      spec: {nodeSelector: {no-such-node: "true"}}
      """
    And Pod "shop/web" is deleted
    And metric "admission_decisions_total PodTerminating" of component webhook is recorded
    When container "app" of Pod "shop/web" is set to image "replace.me/app:2"
    Then image of container "app" in Pod "shop/web" is "replace.me/app:2"
    And metric "admission_decisions_total PodTerminating" of component webhook increases by at least 1 in one replica
