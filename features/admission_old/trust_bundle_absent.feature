Feature: A Pod never waits for a trust bundle that is not there
  A volume that cannot be projected would keep the Pod from starting for ever.

  @serial
  Scenario: The cluster lacks the bundle
    Given the trust bundle does not exist
    And a namespace that asks for nothing
    When a Pod that asks for trust bundle is admitted
    Then it is what it would be without us
    And the owner is warned that "not found"

  @serial
  Scenario: The bundle appears
    Given the trust bundle does not exist
    And a namespace that asks for nothing
    When the trust bundle is created
    And a Pod that asks for trust bundle is admitted
    Then only trust bundle is applied

  @serial
  Scenario: The configuration names none
    Given a namespace that asks for nothing
    And the configuration has no clusterTrustBundle
    When a Pod that asks for trust bundle is admitted
    Then it is what it would be without us
