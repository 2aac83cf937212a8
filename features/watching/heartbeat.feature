Feature: Heartbeats of watchers
  A watcher that stops sending heartbeats is reported, so that it cannot be mistaken for a runtime without changes.

  # https://github.com/kyma-project/lifecycle-manager/issues/3524
  @smoke
  Scenario: A runtime with running watchers is reported as responsive
    Then manager "lifecycle-manager" receives heartbeats from 2 watchers
    And manager "lifecycle-manager" reports the runtime as responsive

  # The heartbeat interval is two seconds here.
  @serial
  Scenario: A runtime is reported as unresponsive after three missed heartbeats
    When component watcher is stopped
    Then manager "lifecycle-manager" reports the runtime as unresponsive between 6 and 8 seconds after its last heartbeat
    When component watcher is started
    Then manager "lifecycle-manager" receives heartbeats from 2 watchers
    And manager "lifecycle-manager" reports the runtime as responsive
