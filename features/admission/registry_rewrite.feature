Feature: Image registries are replaced by those of the landscape
  A workload names the public registry; in its landscape another registry has the image, and the rest of the name stays.

  @sample
  Scenario Outline: Image <image> is rewritten to <result>
    Given Namespace "shop"
    And Pod "shop/web" with image "<image>" and annotation "rt-cfg.kyma-project.io/alter-img-registry=true"
    When Pod "shop/web" is created with dry run
    Then image of container "app" in Pod "shop/web" is "<result>"

    Examples:
      | image                     | result                                 |
      | replace.me/a/b:1          | registry.landscape.test:5000/a/b:1     |
      | replace.me/a              | registry.landscape.test:5000/a         |
      | replace.me/a@sha256:4b3c1a0f9d8e7c6b5a49382716f5e4d3c2b1a0918273645546372819a0b1c2d3 | registry.landscape.test:5000/a@sha256:4b3c1a0f9d8e7c6b5a49382716f5e4d3c2b1a0918273645546372819a0b1c2d3 |
      | port.me:5000/a:v1         | mirror.test/port/a:v1                  |
      | localhost:5001/x          | mirror.test/local/x                    |
      | first.me/x                | mirror.test/second/x                   |

  # The key docker.io covers every reference that resolves to Docker Hub.
  Scenario Outline: Docker Hub image <image> is rewritten to <result>
    Given Namespace "shop"
    And Pod "shop/web" with image "<image>" and annotation "rt-cfg.kyma-project.io/alter-img-registry=true"
    When Pod "shop/web" is created with dry run
    Then image of container "app" in Pod "shop/web" is "<result>"

    Examples:
      | image                   | result                             |
      | nginx                   | mirror.test/hub/library/nginx      |
      | nginx:1.27              | mirror.test/hub/library/nginx:1.27 |
      | bitnami/redis           | mirror.test/hub/bitnami/redis      |
      | docker.io/bash          | mirror.test/hub/library/bash       |
      | docker.io/library/nginx | mirror.test/hub/library/nginx      |

  Scenario Outline: Image <image> matches no override and is not rewritten
    Given Namespace "shop"
    And Pod "shop/web" with image "<image>" and annotation "rt-cfg.kyma-project.io/alter-img-registry=true"
    When Pod "shop/web" is created with dry run
    Then Pod "shop/web" is admitted unchanged

    Examples:
      | image               |
      | ghcr.io/a/b:1       |
      | port.me/a           |
      | replace.me:443/a    |
      | localhost/x         |
      | not.replace.me/a    |
      | deeper.me/cache/a:1 |

  Scenario: A replacement that starts with its own host is applied once
    Given Namespace "shop"
    And Pod "shop/web" with image "deeper.me/a:1" and annotation "rt-cfg.kyma-project.io/alter-img-registry=true"
    When Pod "shop/web" is created with dry run
    And the admitted Pod "shop/web" is created again with dry run
    Then image of container "app" in Pod "shop/web" is "deeper.me/cache/a:1"
    And Pod "shop/web" is admitted unchanged
