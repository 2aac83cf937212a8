Feature: A Pod that could not run becomes a Pod that runs
  This is what the whole product is for: the image's public registry does not exist here, the real one wants
  credentials, and the workload knows nothing of either.

  @smoke @node
  Scenario: With the webhook it runs, and its containers see the landscape
    Given a namespace that asks for everything
    When a Pod with an init container, a sidecar and a container is created
    Then it runs
    And from inside, every container sees FIPS mode
    And from inside, every container sees the landscape's authority

  @node
  Scenario: The first Pod of a namespace brings its Secret along
    Given a namespace that asks for nothing
    When a Pod with the same containers that asks for everything itself is created
    Then the namespace gets the pull Secret
    And it runs

  @node
  Scenario: Where nobody asked, the same Pod cannot be pulled
    Given a namespace that asks for nothing
    When a Pod with an init container, a sidecar and a container is created
    Then its images cannot be pulled

  @node
  Scenario: The right registry alone is not enough without credentials
    Given a namespace that asks for registry rewrite
    When a Pod with an init container, a sidecar and a container is created
    Then its images cannot be pulled

  @node
  Scenario: A debugging session in a Pod that runs
    Given a namespace that asks for everything
    When a Pod with an init container, a sidecar and a container is created
    And it runs
    And kubectl debugs it with the image "replace.me/harness/probe:1"
    Then the debugging container runs
    And no container of it was restarted
