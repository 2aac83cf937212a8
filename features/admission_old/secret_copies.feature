Feature: The pull Secret is where Pods need it
  A Pod that names a Secret can only pull if the Secret is in its own namespace.

  @smoke
  Scenario: A namespace asks for it
    Given a namespace that asks for nothing
    When the namespace asks for pull secret
    Then the namespace gets the pull Secret

  Scenario: A Pod asks for it
    Given a namespace that asks for nothing
    When a Pod that asks for pull secret is created
    Then the namespace gets the pull Secret

  Scenario: Nobody asks for it
    Given a namespace that asks for FIPS mode
    Then the namespace gets no pull Secret

  Scenario: Somebody edits the copy
    Given a namespace that asks for pull secret
    And the namespace has its copy
    When somebody edits the copy
    Then it comes back

  Scenario: Somebody deletes the copy
    Given a namespace that asks for pull secret
    And the namespace has its copy
    When somebody deletes the copy
    Then it comes back

  Scenario: Nobody asks for it any longer
    Given a namespace that asks for pull secret
    And the namespace has its copy
    When the namespace asks for pull secret no longer
    Then the pull Secret is removed

  Scenario: Somebody's own Secret has that name
    Given a namespace that asks for nothing
    And somebody's own Secret of that name is in the namespace
    When the namespace asks for pull secret
    Then an Event "PullSecretConflict" on that Secret says "delete or rename it to get the copy"
    And that Secret is left as it is

  # A dry run has no effect outside of its response.
  Scenario: A Pod is only tried out
    Given a namespace that asks for nothing
    When a Pod that asks for pull secret is admitted
    Then the namespace gets no pull Secret
