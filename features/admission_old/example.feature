Feature: The example Deployment yields the example Pod, word for word
  The files are in src/policy/admission/tests/example: configuration, Deployment and Pod.

  @smoke @serial
  Scenario: A Deployment goes in, and its Pod comes out changed
    Given the configuration of the example
    And a namespace that asks for nothing
    When the Deployment of the example is created
    Then its Pod is the Pod of the example
    And the stored Deployment is what was sent

  Scenario: Nothing but Pods is intercepted
    Then the rules name "pods, pods/ephemeralcontainers" at "CREATE, UPDATE" and nothing else
    And the rules' failurePolicy is Ignore
    And the rules' reinvocationPolicy is IfNeeded
    And the rules' sideEffects is NoneOnDryRun
    And the rules' timeoutSeconds is 3
