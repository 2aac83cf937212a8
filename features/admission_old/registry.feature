Feature: Images come from the landscape's registries
  A workload names the public registry; its landscape has another one, and everything else of the name stays.

  @smoke
  Scenario Outline: <image> comes from elsewhere
    Given a namespace that asks for nothing
    When a Pod with the image "<image>" that asks for registry rewrite is admitted
    Then its image is "<result>"

    Examples:
      | image                                | result                                             |
      | replace.me/a/b:1                     | registry.landscape.test:5000/a/b:1                 |
      | replace.me/a                         | registry.landscape.test:5000/a                     |
      | replace.me/a/b@sha256:4b3c1a0f9d8e7c6b5a49382716f5e4d3c2b1a0918273645546372819a0b1c2d3 | registry.landscape.test:5000/a/b@sha256:4b3c1a0f9d8e7c6b5a49382716f5e4d3c2b1a0918273645546372819a0b1c2d3 |
      | port.me:5000/a:v1                    | mirror.test/port/a:v1                              |
      | localhost:5001/x                     | mirror.test/local/x                                |
      | first.me/x                           | mirror.test/second/x                               |

  # The key docker.io covers every reference that resolves to Docker Hub.
  Scenario Outline: <image> is Docker Hub's, so its mirror has it
    Given a namespace that asks for nothing
    When a Pod with the image "<image>" that asks for registry rewrite is admitted
    Then its image is "<result>"

    Examples:
      | image                    | result                                |
      | nginx                    | mirror.test/hub/library/nginx         |
      | nginx:1.27               | mirror.test/hub/library/nginx:1.27    |
      | bitnami/redis            | mirror.test/hub/bitnami/redis         |
      | docker.io/bash           | mirror.test/hub/library/bash          |
      | docker.io/library/nginx  | mirror.test/hub/library/nginx         |

  Scenario Outline: <image> stays
    Given a namespace that asks for nothing
    When a Pod with the image "<image>" that asks for registry rewrite is admitted
    Then it is what it would be without us

    Examples:
      | image                    |
      | ghcr.io/a/b:1            |
      | port.me/a                |
      | replace.me:443/a         |
      | localhost/x              |
      | not.replace.me/a         |
      | deeper.me/cache/a:1      |

  Scenario: A replacement that begins with its own host is put in once
    Given a namespace that asks for nothing
    When a Pod with the image "deeper.me/a:1" that asks for registry rewrite is admitted
    And it is admitted again
    Then its image is "deeper.me/cache/a:1"
