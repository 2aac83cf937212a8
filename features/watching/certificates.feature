Feature: Certificates of both sides are replaced while changes go on
  An authority is rotated on 5,000 runtimes, and nobody should have to restart or miss anything.

  @serial
  Scenario: Another authority signs
    Given a user creates Kymas all the while
    When the certificates of both sides are replaced by those of another authority
    Then no handshake failed on either side
    And the watcher was not restarted
    And lifecycle-manager hears of all of them
