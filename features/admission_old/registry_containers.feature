Feature: Every container of a Pod comes from the landscape's registries
  An init container that cannot be pulled stops a Pod as surely as any other.

  Scenario: Containers, init containers and native sidecars
    Given a namespace that asks for nothing
    When a Pod that asks for registry rewrite is admitted with
      | image         | replace.me/app:1     |
      | second image  | ghcr.io/second:1     |
      | init image    | replace.me/init:1    |
      | sidecar image | replace.me/sidecar:1 |
    Then its images are
      | init    | registry.landscape.test:5000/init:1    |
      | sidecar | registry.landscape.test:5000/sidecar:1 |
      | app     | registry.landscape.test:5000/app:1     |
      | second  | ghcr.io/second:1                       |

  Scenario: An ephemeral container of a debugging session
    Given a namespace that asks for nothing
    And a stored Pod with
      | registry rewrite | true             |
      | image            | replace.me/app:1 |
    When kubectl debugs it with the image "replace.me/tools:1"
    Then its images are
      | app      | registry.landscape.test:5000/app:1   |
      | debugger | registry.landscape.test:5000/tools:1 |

  Scenario: A text that is not an image reference is left unchanged
    Given a namespace that asks for nothing
    When a Pod with the image "replace.me/UPPER:1" that asks for registry rewrite is admitted
    Then it is what it would be without us
    And the owner is warned that "is not a valid image reference"

  Scenario: An image that is mounted as a volume
    Given a namespace that asks for nothing
    When a Pod that asks for registry rewrite is admitted with
      | image         | quay.io/app:1      |
      | mounted image | replace.me/model:1 |
      | pull secret   | true               |
    Then the image that it mounts is "registry.landscape.test:5000/model:1"
    And its pull Secrets are "registry-credentials"
