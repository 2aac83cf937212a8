Feature: A watcher that falls silent is noticed
  A broken watcher looks like a quiet cluster, unless it has to say that it is well.

  # https://github.com/kyma-project/lifecycle-manager/issues/3524
  @smoke
  Scenario: Watchers say that they are well
    Then lifecycle-manager has heartbeats of 2 watchers
    And the runtime is not silent

  @serial
  Scenario: The watcher is down
    Given lifecycle-manager has heartbeats of 2 watchers
    When the watcher is down
    Then the runtime is found silent when the third heartbeat is due
