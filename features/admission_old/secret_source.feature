Feature: Copies follow the pull Secret of the product's namespace
  Credentials are rotated in one place, and every namespace that needs them has them a moment later.

  @serial
  Scenario: It changes
    Given a namespace that asks for pull secret
    And the namespace has its copy
    When the pull Secret changes
    Then it comes back

  @serial
  Scenario: Only a label of it changes
    Given a namespace that asks for pull secret
    And the namespace has its copy
    When only a label of the pull Secret changes
    Then no copy is written

  @serial
  Scenario: A deleted pull Secret takes its copies along
    Given a namespace that asks for pull secret
    And the namespace has its copy
    When the pull Secret is deleted
    Then the pull Secret is removed

  @serial
  Scenario: There is none to copy
    Given the pull Secret does not exist
    And a namespace that asks for pull secret
    Then the namespace gets no pull Secret

  @serial
  Scenario: The feature is not available
    Given a namespace that asks for pull secret
    And the configuration has availableFeatures ["rt-cfg.kyma-project.io/alter-img-registry"]
    Then the pull Secret is removed

  # a running Pod needs the Secret at its next pull, and what a Pod names cannot be changed
  @serial
  Scenario: The feature is withdrawn while a Pod names the copy
    Given a namespace that asks for pull secret
    And the namespace has its copy
    And a stored Pod with
      | pull secret entry | registry-credentials |
    When the configuration gets availableFeatures ["rt-cfg.kyma-project.io/alter-img-registry"]
    Then the copy stays for 15 seconds
    When the Pod is deleted
    Then the pull Secret is removed

  @serial
  Scenario: The source itself is never written
    Given the namespace "kyma-system"
    And the namespace has its copy
    When a Pod that asks for pull secret is created
    Then no copy is written
