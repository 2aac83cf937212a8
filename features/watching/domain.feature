Feature: Runtimes that are identified by their domain
  A manager can accept a runtime by the domain in its certificate, which KCP knows from the Kyma.

  Background:
    Given Watcher "pinned" for configmaps with field spec and manager "pinned-manager"
    And Namespace "shop"

  Scenario: A runtime with the known domain is accepted
    When ConfigMap "shop/app" is created with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: pinned}}
      """
    Then manager "pinned-manager" receives an event for ConfigMap "shop/app"
    And manager "module-manager" receives no event for ConfigMap "shop/app"

  @serial
  Scenario: A runtime with another domain is rejected until KCP knows its domain
    When SkrDomain of Runtime "one" is set to "two.skr.landscape.test"
    And ConfigMap "shop/app" is created with:
      """
      metadata: {labels: {operator.kyma-project.io/watched-by: pinned}}
      """
    Then metric "watcher_listener_failed_verification_requests_total" of manager "pinned-manager" increases by at least 1
    And manager "pinned-manager" has received no event for ConfigMap "shop/app"
    When SkrDomain of Runtime "one" is set to "one.skr.landscape.test"
    Then manager "pinned-manager" receives an event for ConfigMap "shop/app"
