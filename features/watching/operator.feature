Feature: Operators that embed the listener
  The example of the listener's crate is built as any operator would be, and runs as a Pod behind the gateway.

  @smoke
  Scenario: An operator in a Pod receives an event for an object that its Watcher selects
    Given Watcher "examples" for configmaps with field spec and manager "example-operator"
    And Namespace "shop"
    When ConfigMap "shop/settings" is created with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: example}}
      """
    Then the example operator logs "ConfigMap" for ConfigMap "shop/settings"
