Feature: Outage of KCP
  While KCP is unavailable, writes on the runtime are not delayed; afterwards every event is delivered.

  Background:
    Given Namespace "shop"

  @serial
  Scenario Outline: Events are delivered after KCP was unavailable: <fault>
    When KCP becomes unreachable: <fault>
    And 100 Kymas are created in Namespace "shop"
    Then manager "lifecycle-manager" has received no event for the created Kymas
    And nine of ten AdmissionReviews took at most 500ms
    When KCP becomes reachable again
    Then manager "lifecycle-manager" receives an event for each of the created Kymas

    Examples:
      | fault                   |
      | connections are refused |
      | packets are dropped     |
      | the listener is stopped |

  @serial
  Scenario: Events that a full listener rejects are delivered when it accepts events again
    When KCP becomes unreachable: the listener is full
    And 100 Kymas are created in Namespace "shop"
    Then metric "watcher_listener_rejected_events_total{reason="runtime_limit"}" of manager "lifecycle-manager" increases by at least 1
    And manager "lifecycle-manager" has received no event for the created Kymas
    And nine of ten AdmissionReviews took at most 500ms
    When KCP becomes reachable again
    Then manager "lifecycle-manager" receives an event for each of the created Kymas

  # The gateway's timer of five seconds may end some milliseconds early.
  @serial
  Scenario: Events are delivered late while KCP answers slowly
    When KCP becomes unreachable: requests are delayed by 5 seconds
    And 10 Kymas are created in Namespace "shop"
    Then nine of ten AdmissionReviews took at most 500ms
    And manager "lifecycle-manager" receives an event for each of the created Kymas after at least 4 seconds

  @serial @node
  Scenario: Events are delivered after every watcher was killed during an outage
    When KCP becomes unreachable: connections are refused
    And 100 Kymas are created in Namespace "shop"
    And component watcher is killed
    And KCP becomes reachable again
    Then manager "lifecycle-manager" receives an event for each of the created Kymas

  # A Pod of the watcher delivers its events before it ends.
  @serial @node
  Scenario: No change is missed while the watcher is rolled out
    Given Kymas are created continuously in Namespace "shop"
    When component watcher is restarted
    Then manager "lifecycle-manager" receives an event for each of the created Kymas
    And the API server got an answer to every AdmissionReview
