Feature: A Pod names the pull Secret when it needs it
  Credentials belong where they open something; a Pod that lacks them cannot be mended later.

  @smoke
  Scenario: The Pod's registry wants credentials
    Given a namespace that asks for nothing
    When a Pod with the image "registry.landscape.test:5000/a:1" that asks for pull secret is admitted
    Then its pull Secrets are "registry-credentials"
    And it carries the marker

  Scenario: The rewritten image counts, not the written one
    Given a namespace that asks for nothing
    When a Pod that asks for registry rewrite is admitted with
      | pull secret | true             |
      | image       | replace.me/app:1 |
    Then its pull Secrets are "registry-credentials"

  Scenario: An init container's registry counts too
    Given a namespace that asks for nothing
    When a Pod that asks for pull secret is admitted with
      | image      | ghcr.io.example.org/app:1        |
      | init image | registry.landscape.test:5000/a:1 |
    Then its pull Secrets are "registry-credentials"

  Scenario: No registry of the Pod wants credentials
    Given a namespace that asks for nothing
    When a Pod with the image "quay.io/a/b:1" that asks for pull secret is admitted
    Then it is what it would be without us

  Scenario: What was there stays, and ours comes last
    Given a namespace that asks for nothing
    When a Pod that asks for pull secret is admitted with
      | image             | registry.landscape.test:5000/a:1 |
      | pull secret entry | own-credentials                  |
    Then its pull Secrets are "own-credentials, registry-credentials"

  Scenario: It is not named twice
    Given a namespace that asks for nothing
    When a Pod that asks for pull secret is admitted with
      | image             | registry.landscape.test:5000/a:1 |
      | pull secret entry | registry-credentials             |
    Then it is what it would be without us
