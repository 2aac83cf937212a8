Feature: Containers trust the landscape's authorities
  Services of the landscape show certificates of its own authorities; every container must be able to verify them.

  # Init containers are included.
  @smoke
  Scenario: The bundle is mounted in every container
    Given a namespace that asks for nothing
    When a Pod that asks for trust bundle is admitted with
      | init image    | replace.me/init:1    |
      | sidecar image | replace.me/sidecar:1 |
      | second image  | replace.me/second:1  |
    Then only trust bundle is applied
    And its volume is the projected bundle
    And it is mounted read-only at "/etc/ssl/certs" in init, sidecar, app, second

  Scenario: It is mounted once
    Given a namespace that asks for nothing
    When a Pod that asks for trust bundle is admitted
    And it is admitted again
    Then nothing changes any more

  Scenario: The Pod has another volume of that name
    Given a namespace that asks for nothing
    When a Pod that asks for trust bundle is admitted with
      | own volume | rt-bootstrapper-certs |
    Then it is what it would be without us
    And the owner is warned that "another volume named rt-bootstrapper-certs"

  Scenario Outline: A container has a mount of its own at <path>
    Given a namespace that asks for nothing
    When a Pod that asks for trust bundle is admitted with
      | own mount    | <path>           |
      | second image | replace.me/b:1   |
    Then it is mounted read-only at "/etc/ssl/certs" in second
    And the owner is warned that "container app: own mount or device at <path>"

    Examples:
      | path                   |
      | /etc/ssl/certs         |
      | /etc/ssl/certs/        |
      | /etc/ssl               |
      | /etc/ssl/certs/my.pem  |

  Scenario: A mount beside ours is in nobody's way
    Given a namespace that asks for nothing
    When a Pod that asks for trust bundle is admitted with
      | own mount | /etc/ssl/certs-of-mine |
    Then only trust bundle is applied

  Scenario: Only the marker is written on the Pod
    Given a namespace that asks for trust bundle
    When a Pod is admitted
    Then it carries the marker
