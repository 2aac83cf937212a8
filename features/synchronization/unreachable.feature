Feature: One runtime's trouble is its own
  Some of thousands of clusters are always away; the others must not notice.

  Scenario: A runtime that does not answer delays nobody
    Given a Runtime whose cluster does not answer, in direct mode
    And a runtime in direct mode
    When the pull Secret changes on KCP
    Then the runtime has the new pull Secret
    And the other one's condition Reachable is False

  Scenario: A runtime that is away comes back
    Given a runtime in direct mode
    When its cluster is away
    And the pull Secret changes on KCP
    Then its condition Reachable is False, for it does not answer
    When its cluster is back
    Then the runtime has the new pull Secret
    And it becomes Ready

  Scenario: A kubeconfig is rotated in two steps
    Given a runtime in direct mode
    When its kubeconfig loses its key
    And the pull Secret changes on KCP
    Then its condition Reachable is False with the reason "KubeconfigNotFound"
    When its kubeconfig is written anew
    Then the runtime has the new pull Secret
    And it becomes Ready

  Scenario Outline: The runtime refuses
    Given a runtime in direct mode
    When on the runtime <obstacle>
    And the pull Secret changes on KCP
    Then its condition ConfigurationSynchronized is False with the reason "<reason>", naming "<fault>"
    When on the runtime the obstacle is removed
    Then the runtime has the new pull Secret

    Examples:
      | obstacle                              | reason        | fault               |
      | our account loses its rights          | InsufficientPermissions | patch secrets       |
      | an admission policy denies our Secret | ApplyFailed   | Secret              |
      | a quota leaves no room for our Secret | ApplyFailed   | a quota is exceeded |
