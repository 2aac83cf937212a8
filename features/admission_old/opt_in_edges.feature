Feature: Opting in holds at its edges
  Nobody should be surprised by a stale marker, a clever label or an odd annotation.

  Scenario Outline: "<value>" to everything is nothing
    Given a namespace that asks for nothing
    When a Pod that says "<value>" to everything is admitted
    Then it is what it would be without us

    Examples:
      | value |
      | false |
      | TRUE  |

  Scenario: A namespace cannot refuse what the configuration lists
    Given a namespace that the configuration lists for trust bundle, and that says "false" to it
    When a Pod is admitted
    Then only trust bundle is applied

  Scenario: A marker of yesterday suppresses nothing
    Given a namespace that asks for nothing
    When a Pod that asks for FIPS mode is admitted with
      | annotation | rt-bootstrapper.kyma-project.io/defaulted=true |
    Then FIPS mode is applied
    And it carries the marker

  Scenario: Nobody dodges by our label
    Given a namespace that asks for FIPS mode
    When a Pod is admitted with
      | label | app.kubernetes.io/name=rt-bootstrapper |
    Then FIPS mode is applied

  Scenario: Our own Pods are not sent to us
    Given the namespace "kyma-system"
    When a Pod that asks for FIPS mode is admitted with
      | label | app.kubernetes.io/name=rt-bootstrapper |
    Then it is what it would be without us

  Scenario: Other Pods beside ours are
    Given the namespace "kyma-system"
    When a Pod that asks for FIPS mode is admitted
    Then FIPS mode is applied

  Scenario: What is changed once is not changed twice
    Given a namespace that asks for everything
    When a Pod is admitted with
      | image         | replace.me/harness/probe:1 |
      | init image    | nginx                      |
      | sidecar image | docker.io/bitnami/redis:7  |
    And it is admitted again
    Then nothing changes any more
