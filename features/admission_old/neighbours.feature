Feature: The webhook is one of many parts of a cluster
  Other webhooks change Pods too, and Pods must be creatable even when we are gone.

  Scenario: A container that another webhook adds after us
    Given a namespace that asks for everything
    And a second webhook that adds a container after us
    When a Pod is admitted with
      | image | replace.me/app:1 |
    Then its images are
      | app         | registry.landscape.test:5000/app:1        |
      | added-later | registry.landscape.test:5000/mesh/proxy:1 |
    And everything is applied

  @serial @slow
  Scenario: The webhook is down
    Given the webhook is down
    And a namespace that asks for nothing
    When a Pod that asks for everything is admitted
    Then it is what it would be without us
    And the API server counts that it went on without the webhook
