Feature: The endpoint keeps to its protocol, whoever speaks to it
  It stands in the way of every Pod of a cluster, so nothing that anyone sends may bring it down.

  @smoke
  Scenario: A review is answered
    When the endpoint reviews a Pod that asks for FIPS mode
    Then it answers with a JSON Patch that only adds or replaces

  Scenario Outline: <what> is no review
    When the endpoint gets <what>
    Then it answers <status>

    Examples:
      | what                        | status |
      | nothing                     | 400    |
      | no JSON                     | 400    |
      | invalid UTF-8               | 400    |
      | a truncated review          | 400    |
      | a Pod in place of a review  | 400    |
      | a review without a uid      | 400    |
      | a review of 8 MiB           | 413    |

  Scenario Outline: <what> passes with a warning
    When the endpoint gets <what>
    Then it answers 200
    And it allows the object unchanged, and warns that "<warning>"

    Examples:
      | what                                                      | warning              |
      | a review of a Pod whose containers are a number           | invalid Pod          |
      | a review of a Pod whose containers are nested 10,000 deep | invalid Pod          |
      | a review of a ConfigMap                                   | expected a Pod       |

  Scenario: Health, readiness and metrics
    Then each replica answers "/healthz" and "/readyz", and counts reviews at "/metrics"

  @serial
  Scenario: A review costs the API server nothing
    Given a namespace that asks for FIPS mode
    When 100 Pods that ask for everything are reviewed
    Then the webhook asked the API server nothing
