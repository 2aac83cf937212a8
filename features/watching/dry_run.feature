Feature: Dry runs of watched objects
  A dry run stores nothing, so no manager receives an event.

  Background:
    Given Namespace "shop"
    And Kyma "shop/app" that manager "lifecycle-manager" has received an event for

  Scenario: A patch with dry run is not reported
    When Kyma "shop/app" is patched with dry run:
      """
      spec: {channel: fast}
      """
    Then manager "lifecycle-manager" receives no event for Kyma "shop/app"

  Scenario: A deletion with dry run is not reported
    When Kyma "shop/app" is deleted with dry run
    Then manager "lifecycle-manager" receives no event for Kyma "shop/app"
