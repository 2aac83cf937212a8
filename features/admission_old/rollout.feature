Feature: A restart of the webhook misses no Pod
  Whoever rolls out a new version does it while customers create Pods, and a Pod that slips through is their outage.

  @serial @slow
  Scenario: 100 Pods a second while the Deployment restarts
    Given a namespace that asks for FIPS mode
    When 100 Pods a second are created there while the webhook restarts
    Then every one of them was created and carries the marker
    And the API server never went on without the webhook
