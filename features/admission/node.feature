Feature: A Pod whose image only the landscape's registry has runs on a node
  The public registry of the image does not exist here, the private one needs credentials, and the workload knows neither.

  @node @smoke
  Scenario Outline: Every container of a Pod that needs the pull Secret runs and sees <what>
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" with:
      """
      spec:
        initContainers:
        - {name: sidecar, image: "replace.me/harness/probe:1", restartPolicy: Always}
        - {name: init, image: "replace.me/harness/probe:1", args: [<command>]}
        containers: [{name: app, image: "replace.me/harness/probe:1"}]
      """
    When Pod "shop/web" is created
    Then Pod "shop/web" is Running
    And log of container "init" in Pod "shop/web" is <expected>
    And command "/probe <words>" in container "sidecar" of Pod "shop/web" prints <expected>
    And command "/probe <words>" in container "app" of Pod "shop/web" prints <expected>

    Examples:
      | what            | command                     | words                      | expected |
      | FIPS mode       | env, KYMA_FIPS_MODE_ENABLED | env KYMA_FIPS_MODE_ENABLED | "true"   |
      | the trust bundle | cat, /etc/ssl/certs/kube-apiserver-serving.pem | cat /etc/ssl/certs/kube-apiserver-serving.pem | ClusterTrustBundle "rt-bootstrapper-k3d.test:ctb:1" |

  @node
  Scenario: The first Pod of a Namespace that opts in by itself gets the pull Secret and runs
    Given Namespace "shop"
    And Pod "shop/web" with image "replace.me/harness/probe:1" and annotation "rt-cfg.kyma-project.io/all=true"
    When Pod "shop/web" is created
    Then Secret "shop/registry-credentials" exists
    And Pod "shop/web" is Running

  @node
  Scenario Outline: The image of a Pod cannot be pulled <when>
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/alter-img-registry=<value>"
    And Pod "shop/web" with image "replace.me/harness/probe:1"
    When Pod "shop/web" is created
    Then Pod "shop/web" fails with reason "ErrImagePull"
    And image of container "app" in Pod "shop/web" is "<image>"

    Examples:
      | when                                        | value | image                                        |
      | when its Namespace does not opt in          | false | replace.me/harness/probe:1                   |
      | from the right registry without pull Secret | true  | registry.landscape.test:5000/harness/probe:1 |

  @node
  Scenario: An ephemeral container is added to a running Pod without a restart
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And Pod "shop/web" exists with:
      """
      spec: {containers: [{name: app, image: "replace.me/harness/probe:1"}]}
      """
    And Pod "shop/web" is Running
    When an ephemeral container "debugger" with image "replace.me/harness/probe:1" is added to Pod "shop/web"
    Then ephemeral container "debugger" of Pod "shop/web" is Running
    And no container of Pod "shop/web" was restarted
