Feature: A Pod that is changed later gets only what the change needs
  A Pod that runs must not be disturbed: most of it cannot be changed any more, and a changed image restarts it.

  Scenario: Somebody sets another image
    Given a stored Pod with
      | image | localhost/probe:1 |
    When the namespace asks for everything
    And kubectl sets its image to "replace.me/app:2"
    Then nothing of it changed but its image, which is "registry.landscape.test:5000/app:2"
    And it carries no marker

  Scenario: Somebody sets an image in a namespace that asks for nothing
    Given a stored Pod with
      | image | localhost/probe:1 |
    When kubectl sets its image to "replace.me/app:2"
    Then nothing of it changed but its image, which is "replace.me/app:2"

  Scenario: A label is edited, and the old image stays
    Given a stored Pod with
      | image | replace.me/app:1 |
    When the namespace asks for everything
    And kubectl edits a label of it
    Then nothing of it changed but that label

  @node
  Scenario: A label is edited, and nothing restarts
    Given a namespace that asks for nothing
    When a plain Pod is created
    And it runs
    And the namespace asks for everything
    And kubectl edits a label of it
    Then nothing of it changed but that label
    And no container of it was restarted

  Scenario: A Pod on its way out is left alone
    Given a stored Pod with
      | FIPS mode | true                |
      | finalizer | harness.test/stays  |
    When the namespace asks for everything
    And it is on its way out
    And kubectl sets its image to "replace.me/app:2"
    Then its image is "replace.me/app:2"

  Scenario: A mirror Pod belongs to its kubelet
    Given a namespace that asks for everything
    When a mirror Pod is admitted
    Then it is what it would be without us
