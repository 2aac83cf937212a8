Feature: No Pod is missed while the webhook changes
  Pods are created all the time: replicas that come and go, new certificates and documents must not leave one unchanged.

  @serial @slow @cluster
  Scenario Outline: No Pod is missed while <disturbance>
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When <disturbance> while at least <Pods> Pods are created in Namespace "shop"
    Then every created Pod is mutated
    And the API server admitted no Pod without asking the webhook
    And no replica of component webhook left a client without an answer within 10 seconds after its deletion

    Examples:
      | Pods | disturbance                                                 |
      | 500  | component webhook is rolled out 1 time                      |
      | 500  | each replica of component webhook is evicted 1 time         |
      | 500  | the certificate of component webhook is issued anew 3 times |
      | 500  | component webhook cannot reach the API server 1 time        |
      | 500  | the configuration is changed 3 times                        |

    @long
    Examples:
      | Pods | disturbance                                                  |
      | 4000 | component webhook is rolled out 10 times                     |
      | 4000 | each replica of component webhook is evicted 3 times         |
      | 4000 | the certificate of component webhook is issued anew 10 times |
      | 4000 | component webhook cannot reach the API server 10 times       |
      | 4000 | the configuration is changed 100 times                       |

  @serial @slow @cluster
  Scenario Outline: No Pod is missed while <disturbance>
    Given component webhook runs with certificate files
    And Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When <disturbance> while at least <Pods> Pods are created in Namespace "shop"
    Then every created Pod is mutated
    And the API server admitted no Pod without asking the webhook
    And no replica of component webhook left a client without an answer within 10 seconds after its deletion

    Examples:
      | Pods | disturbance                                                              |
      | 500  | the certificate files of component webhook are replaced 3 times          |
      | 500  | the CA of the certificate files of component webhook is replaced 2 times |

    @long
    Examples:
      | Pods | disturbance                                                               |
      | 4000 | the certificate files of component webhook are replaced 100 times         |
      | 4000 | the CA of the certificate files of component webhook is replaced 20 times |

  # The API server does not ask again after a connection was closed or refused.
  @serial @slow @cluster
  Scenario Outline: Only Pods that are sent to a killed replica are missed while <disturbance>
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When <disturbance> while at least <Pods> Pods are created in Namespace "shop"
    Then every created Pod is mutated but those sent to a killed replica

    Examples:
      | Pods | disturbance                                     |
      | 500  | a replica of component webhook is killed 1 time |

    @long
    Examples:
      | Pods | disturbance                                      |
      | 4000 | a replica of component webhook is killed 6 times |
