Feature: Each manager hears of what its Watchers name, and of nothing else
  Several operators on KCP share one runtime, and none is to be woken for another's objects.

  Scenario: Labels say what is watched
    Given a Kyma that nobody watches
    When a user changes its spec
    Then lifecycle-manager does not hear of it

  Scenario Outline: A type without a spec: <kind>
    Given a <kind> that KCP knows
    When a user <does>
    Then module-manager hears of it
    And lifecycle-manager does not hear of it

    Examples:
      | kind        | does              |
      | ConfigMap   | changes its data  |
      | ClusterRole | changes its rules |

  # Any subresource that a Watcher names.
  Scenario: A subresource
    Given a Deployment that nobody watches
    When a user scales it
    Then module-manager hears of it
    And lifecycle-manager does not hear of it

  # A certificate that KCP's managers tell apart by its name alone, and one that is pinned to its domain.
  Scenario: A manager that pins the runtime's domain
    When a user creates a ConfigMap watched by "pinned"
    Then pinned-manager hears of it
    And module-manager does not hear of it

  @serial
  Scenario: A certificate of another domain is refused until KCP knows it
    Given KCP knows another domain for the runtime
    When a user creates a ConfigMap watched by "pinned"
    Then pinned-manager does not hear of it
    When KCP knows the runtime's domain
    Then pinned-manager hears of it
