Feature: Events for changes of watched objects
  A manager on KCP receives an event for each change of what its Watcher names, and none for other changes.

  Background:
    Given Watcher "kymas" for kymas with field spec and manager "lifecycle-manager"
    And Watcher "statuses" for kymas with field status and manager "status-manager"
    And Namespace "shop"

  # A review precedes the storage of the object, so a follow-up event confirms the change.
  @smoke
  Scenario: A created object is reported by an event and a follow-up event
    When Kyma "shop/app" is created with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: kyma}}
      spec: {channel: regular}
      """
    Then manager "lifecycle-manager" receives an event for Kyma "shop/app"
    And manager "lifecycle-manager" receives a follow-up event for Kyma "shop/app"

  Scenario Outline: A change of the <field> is reported to lifecycle-manager: <event>
    Given Kyma "shop/app" that manager "lifecycle-manager" has received an event for
    When Kyma "shop/app" is patched with:
      """
      <patch>
      """
    Then manager "lifecycle-manager" receives <event> for Kyma "shop/app"
    And manager "status-manager" receives no event for Kyma "shop/app"

    Examples:
      | field  | patch                             | event    |
      | spec   | spec: {channel: fast}             | an event |
      | labels | metadata: {labels: {color: blue}} | no event |

  Scenario: A change of the status is reported to the manager of the status only
    Given Kyma "shop/app" that manager "lifecycle-manager" has received an event for
    When subresource status of Kyma "shop/app" is patched with:
      """
      status: {state: Ready}
      """
    Then manager "status-manager" receives an event for Kyma "shop/app"
    And manager "lifecycle-manager" receives no event for Kyma "shop/app"

  Scenario: A write without a change is not reported
    Given Kyma "shop/app" that manager "lifecycle-manager" has received an event for
    When Kyma "shop/app" is patched with:
      """
      {}
      """
    Then manager "lifecycle-manager" receives no event for Kyma "shop/app"
    And manager "status-manager" receives no event for Kyma "shop/app"

  Scenario: A deletion is reported
    Given Kyma "shop/app" that manager "lifecycle-manager" has received an event for
    When Kyma "shop/app" is deleted
    Then manager "lifecycle-manager" receives an event for Kyma "shop/app"
    And manager "status-manager" receives no event for Kyma "shop/app"
