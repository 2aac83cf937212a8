Feature: KCP may be away: users notice nothing, and nothing is lost
  A control plane is upgraded, overloaded or cut off; its customers' clusters go on.

  @serial
  Scenario Outline: KCP <is away> for a while
    Given KCP <is away>
    When a user creates 100 Kymas
    Then no write was held up
    And lifecycle-manager has heard of none of them
    When KCP is well again
    Then lifecycle-manager hears of all of them

    Examples:
      | is away             |
      | refuses connections |
      | does not answer     |
      | has no listener     |
      | is busy             |

  @serial @node
  Scenario: The watcher is killed between answer and delivery
    Given KCP refuses connections
    When a user creates 100 Kymas
    And every watcher is killed with kill -9
    And KCP is well again
    Then lifecycle-manager hears of all of them

  @serial
  Scenario: KCP is slow
    Given KCP answers late
    When a user creates 10 Kymas
    Then no write was held up
    And lifecycle-manager has heard of none of them
    And lifecycle-manager hears of all of them

  # A watcher delivers what it accepted, also when its Pod is replaced.
  @serial @node
  Scenario: The watcher is rolled out while users go on
    Given a user creates Kymas all the while
    When the watcher is rolled out
    Then lifecycle-manager hears of all of them
    And no change went on without the watcher's answer
