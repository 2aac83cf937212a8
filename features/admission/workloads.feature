Feature: Pods of workloads are mutated and the templates of workloads are not
  A template that another client than its owner changes would be undone by GitOps, and changed again.

  @serial @cluster
  Scenario: The example Deployment yields the example Pod
    Given the configuration is file "src/policy/admission/tests/example/config.json"
    And Namespace "shop"
    When Deployment "shop/pause-test1" is created from file "scenarios/fixtures/pause-test1.yaml"
    Then the Pod with label "app=pause-test1" in Namespace "shop" equals file "src/policy/admission/tests/example/pod.yaml"
    And Deployment "shop/pause-test1" is stored as it was sent

  @node
  Scenario Outline: The Pod of a <kind> is mutated and its template is not
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When <kind> "shop/web" is created with:
      """
      spec:
        <settings>
        template:
          metadata: {labels: {app: web}}
          spec:
            terminationGracePeriodSeconds: 0
            restartPolicy: <restart>
            containers: [{name: app, image: "localhost/probe:1", imagePullPolicy: IfNotPresent}]
      """
    Then the Pod with label "app=web" in Namespace "shop" matches:
      """
      metadata: {annotations: {rt-bootstrapper.kyma-project.io/defaulted: "true"}}
      spec: {containers: [{env: [{name: KYMA_FIPS_MODE_ENABLED, value: "true"}]}]}
      """
    And <kind> "shop/web" is stored as it was sent

    Examples:
      | kind        | restart | settings                                                |
      | Deployment  | Always  | selector: {matchLabels: {app: web}}                     |
      | DaemonSet   | Always  | selector: {matchLabels: {app: web}}                     |
      | StatefulSet | Always  | selector: {matchLabels: {app: web}}                     |
      | Job         | Never   | backoffLimit: 0                                         |

  @node @slow
  Scenario: The Pod of a CronJob is mutated and its template is not
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"
    When CronJob "shop/web" is created with:
      """
      spec:
        schedule: "* * * * *"
        jobTemplate:
          spec:
            template:
              metadata: {labels: {app: web}}
              spec:
                restartPolicy: Never
                containers: [{name: app, image: "localhost/probe:1", imagePullPolicy: IfNotPresent, args: ["exit", "0"]}]
      """
    Then the Pod with label "app=web" in Namespace "shop" matches:
      """
      metadata: {annotations: {rt-bootstrapper.kyma-project.io/defaulted: "true"}}
      spec: {containers: [{env: [{name: KYMA_FIPS_MODE_ENABLED, value: "true"}]}]}
      """
    And CronJob "shop/web" is stored as it was sent
