Feature: The admission endpoint keeps to its protocol whatever it receives
  It is called for every Pod of a cluster, so no request may stop it.

  @sample
  Scenario: A Pod that opts in is answered with a JSON patch
    When an AdmissionReview is posted to the webhook with request:
      """
      uid: u-1
      operation: CREATE
      namespace: default
      resource: {group: "", version: v1, resource: pods}
      object:
        metadata: {annotations: {rt-cfg.kyma-project.io/set-fips-mode: "true"}}
        spec: {containers: [{name: app, image: "replace.me/a"}]}
      """
    Then the response has status 200
    And the AdmissionReview is allowed with a JSON patch of operations "add, replace"

  @sample
  Scenario Outline: Body <body> is rejected with status <status>
    When body <body> is posted to the webhook
    Then the response has status <status>

    Examples:
      | body                                                                         | status |
      | ''                                                                           | 400    |
      | 'replicas: 2'                                                                | 400    |
      | "invalid UTF-8"                                                              | 400    |
      | "truncated AdmissionReview"                                                  | 400    |
      | '{"apiVersion": "v1", "kind": "Pod"}'                                        | 400    |
      | '{"kind": "AdmissionReview", "request": {"operation": "CREATE"}}'            | 400    |

  # The limit of the size belongs to the server, not to the router.
  @cluster
  Scenario: A review of 8 MiB is rejected with status 413
    When body "AdmissionReview of 8 MiB" is posted to the webhook
    Then the response has status 413

  @sample
  Scenario: A Pod with containers nested 10,000 deep is allowed with a warning
    When body "containers nested 10,000 deep" is posted to the webhook
    Then the response has status 200
    And the AdmissionReview is allowed without patch and with warning "invalid Pod"

  @sample
  Scenario Outline: A review of <what> is allowed with the warning "<warning>"
    When an AdmissionReview is posted to the webhook with request:
      """
      {uid: u-1, operation: CREATE, namespace: default, resource: {group: "", version: v1, resource: <resource>}, object: <object>}
      """
    Then the response has status 200
    And the AdmissionReview is allowed without patch and with warning "<warning>"

    Examples:
      | what                                | resource   | object                    | warning        |
      | a Pod whose containers are a number | pods       | {spec: {containers: 7}}   | invalid Pod    |
      | a ConfigMap                         | configmaps | {}                        | expected a Pod |

  @cluster
  Scenario: Every replica is ready and counts reviews
    Given metric "admission_reviews_total" of component webhook is recorded
    Then component webhook reports readiness true with message ""
    And every replica of component webhook admits a Pod unchanged with warning ""
    And metric "admission_reviews_total" of component webhook increases by at least 1

  @serial @cluster
  Scenario: A review costs no request to the API server
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When 500 Pods with annotation "rt-cfg.kyma-project.io/all=true" are created with dry run in Namespace "shop"
    Then component webhook reviewed each of them without a request to the API server
