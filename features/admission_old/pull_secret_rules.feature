Feature: The owner of a landscape rules where credentials are named
  Whoever holds credentials says how freely they travel.

  @serial
  Scenario: The Secret is not known yet
    Given the pull Secret does not exist
    And a namespace that asks for nothing
    When a Pod with the image "quay.io/a/b:1" that asks for pull secret is admitted
    Then its pull Secrets are "registry-credentials"

  # the kubelet fails every pull of a Pod that names a Secret which it cannot parse
  @serial
  Scenario: The Secret is not a valid docker configuration
    Given the pull Secret is not a valid docker configuration
    And a namespace that asks for nothing
    When a Pod with the image "registry.landscape.test:5000/a:1" that asks for pull secret is admitted
    Then it is what it would be without us
    And the owner is warned that "registry-credentials is not a valid docker configuration"

  @serial
  Scenario: The configuration says always
    Given a namespace that asks for nothing
    And the configuration has imagePullSecret {"inject": "always"}
    When a Pod with the image "quay.io/a/b:1" that asks for pull secret is admitted
    Then its pull Secrets are "registry-credentials"

  @serial
  Scenario: The configuration keeps credentials out of a namespace
    Given a namespace that asks for nothing
    And the configuration has imagePullSecret {"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}
    When a Pod with the image "registry.landscape.test:5000/a:1" that asks for pull secret is admitted
    Then it is what it would be without us

  @serial
  Scenario: The configuration lets credentials into a namespace
    Given a namespace with the label "trusted=yes"
    And the configuration has imagePullSecret {"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}
    When a Pod with the image "registry.landscape.test:5000/a:1" that asks for pull secret is admitted
    Then its pull Secrets are "registry-credentials"

  @serial
  Scenario: The Secret has another name
    Given a namespace that asks for nothing
    And the configuration has imagePullSecret {"name": "other-credentials", "inject": "always"}
    When a Pod with the image "quay.io/a/b:1" that asks for pull secret is admitted
    Then its pull Secrets are "other-credentials"
