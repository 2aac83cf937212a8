Feature: The example of the specification holds, word for word
  Whoever reads the specification may try its example and see what it promises.

  @smoke @serial
  Scenario: A Deployment goes in, and its Pod comes out changed
    Given the configuration of the seed's example
    And a namespace that asks for nothing
    When the seed's Deployment is created
    Then its Pod is the seed's Pod
    And the stored Deployment is what was sent

  Scenario: Nothing but Pods is intercepted
    Then the rules name "pods, pods/ephemeralcontainers" at "CREATE, UPDATE" and nothing else
    And the rules' failurePolicy is Ignore
    And the rules' reinvocationPolicy is IfNeeded
    And the rules' sideEffects is NoneOnDryRun
    And the rules' timeoutSeconds is 3
