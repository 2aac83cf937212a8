Feature: Selection of watched objects
  A Watcher selects objects by resource, subresource, field and labels; each manager receives events of its Watchers only.

  Background:
    Given Watcher "config-maps" for configmaps with field spec and manager "module-manager"
    And Watcher "roles" for clusterroles with field spec and manager "module-manager"
    And Watcher "scales" for deployments/scale with field spec and manager "module-manager"
    And Namespace "shop"

  Scenario: An object without the label of the Watcher is not reported
    Given Kyma "shop/app" exists with:
      """
      spec: {channel: regular}
      """
    When Kyma "shop/app" is patched with:
      """
      spec: {channel: fast}
      """
    Then manager "lifecycle-manager" receives no event for Kyma "shop/app"

  Scenario Outline: A change of <object>, which has no spec, is reported
    Given <object> that manager "module-manager" has received an event for
    When <object> is patched with:
      """
      <patch>
      """
    Then manager "module-manager" receives an event for <object>
    And manager "lifecycle-manager" receives no event for <object>

    Examples:
      | object                     | patch                                                       |
      | ConfigMap "shop/app"       | data: {key: two}                                            |
      | ClusterRole "watched-role" | rules: [{apiGroups: [""], resources: [pods], verbs: [get]}] |

  Scenario: A change of a subresource that a Watcher names is reported
    Given Deployment "shop/app" exists with:
      """
      spec:
        replicas: 0
        selector: {matchLabels: {app: app}}
        template:
          metadata: {labels: {app: app}}
          spec: {nodeSelector: {example.test/none: "true"}, containers: [{name: app, image: "localhost/none:1"}]}
      """
    When subresource scale of Deployment "shop/app" is patched with:
      """
      spec: {replicas: 1}
      """
    Then manager "module-manager" receives an event for Scale "shop/app"
    And manager "lifecycle-manager" receives no event for Scale "shop/app"
