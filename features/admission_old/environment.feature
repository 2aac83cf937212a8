Feature: Workloads are told how they have to run
  A module switches to certified cryptography, or to its landscape's peculiarities, by a variable.

  @smoke
  Scenario: FIPS mode in every container
    Given a namespace that asks for nothing
    When a Pod that asks for FIPS mode is admitted with
      | init image    | replace.me/init:1    |
      | sidecar image | replace.me/sidecar:1 |
      | second image  | replace.me/second:1  |
    Then each of its containers has the variable "KYMA_FIPS_MODE_ENABLED" with "true"
    And it carries the marker

  Scenario: It is there already
    Given a namespace that asks for FIPS mode
    When a Pod is admitted with
      | variable | KYMA_FIPS_MODE_ENABLED=true |
    Then it is what it would be without us

  Scenario: It has another value, and its place is kept
    Given a namespace that asks for FIPS mode
    When a Pod is admitted with
      | variable | FIRST=1                      |
      | variable | KYMA_FIPS_MODE_ENABLED=false |
      | variable | LAST=1                       |
    Then each of its containers has the variable "KYMA_FIPS_MODE_ENABLED" with "true"
    And its variables are "FIRST, KYMA_FIPS_MODE_ENABLED, LAST"

  Scenario: It comes from a ConfigMap
    Given a namespace that asks for FIPS mode
    When a Pod is admitted with
      | variable from a ConfigMap | KYMA_FIPS_MODE_ENABLED |
    Then each of its containers has the variable "KYMA_FIPS_MODE_ENABLED" with "true"

  Scenario: The landscape's name
    Given a namespace that asks for landscape
    When a Pod is admitted with
      | variable   | KYMA_LANDSCAPE=elsewhere |
      | init image | replace.me/init:1        |
    Then each of its containers has the variable "KYMA_LANDSCAPE" with "test-landscape"

  @serial
  Scenario: The configuration names further variables
    Given a namespace that asks for nothing
    And the configuration has fipsVariables ["KYMA_FIPS_MODE_ENABLED", "FIPS_MODE_ENABLED"]
    When a Pod that asks for FIPS mode is admitted
    Then each of its containers has the variable "KYMA_FIPS_MODE_ENABLED" with "true"
    And each of its containers has the variable "FIPS_MODE_ENABLED" with "true"
