Feature: A new configuration is in force for the next Pod
  The owner of a landscape edits one document; nothing has to be restarted.

  @serial
  Scenario Outline: <document> allows nothing
    When the document becomes <document>
    Then it is in force, and allows nothing
    When a Pod that asks for everything is admitted
    Then it is what it would be without us

    Examples:
      | document                                                                                       |
      | {"overrides": {}}                                                                              |
      | {"overrides": {"replace.me": "a.test"}, "somebody": "else's key"}                              |
      | {"overrides": {}, "namespaceFeatures": {"listed-everything": ["rt-cfg.kyma-project.io/set-fips-mode"]}} |
      | {"overrides": {}, "namespaceFeatures": {"listed-everything": ["rt-cfg.kyma-project.io/all"]}}  |

  @smoke @serial
  Scenario: Another replacement
    Given a namespace that asks for registry rewrite
    When the configuration gets overrides {"replace.me": "new.test/path"}
    And a Pod is admitted with
      | image | replace.me/app:1 |
    Then its image is "new.test/path/app:1"
    And no replica was restarted

  @serial
  Scenario: Another list of namespaces
    Given a namespace that the configuration lists for registry rewrite
    When the configuration gets namespaceFeatures {"listed-registry-rewrite": ["rt-cfg.kyma-project.io/set-fips-mode"]}
    And a Pod is admitted with
      | image | replace.me/app:1 |
    Then only FIPS mode is applied

  @serial
  Scenario: A feature is withdrawn
    Given a namespace that asks for everything
    When the configuration gets availableFeatures ["rt-cfg.kyma-project.io/alter-img-registry"]
    And a Pod is admitted with
      | image | replace.me/app:1 |
    Then only registry rewrite is applied
    And no replica was restarted

  @serial @slow
  Scenario: The webhook does not know its landscape
    Given the webhook was not told its landscape
    And a namespace that asks for nothing
    When a Pod that asks for landscape is admitted
    Then it is what it would be without us
    And the owner is warned that "without --landscape"
