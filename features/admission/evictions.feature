Feature: Pods that lack changes are evicted, and their successors get them
  Evictions are off by default, and need a RoleBinding in each Namespace.

  Background:
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/all=true"
    And RoleBinding "shop/pod-restarter" exists with:
      """
      roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rt-bootstrapper-pod-restarter-role}
      subjects: [{kind: ServiceAccount, name: rt-bootstrapper-controller-manager, namespace: kyma-system}]
      """
    And component webhook runs with flags "--evict-missed-pods --restart-pods-on-change=trust-bundle"

  @serial @node @slow
  Scenario: A missed Pod is evicted
    Given component webhook is stopped
    And StatefulSet "shop/web" exists with:
      """
      spec:
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            terminationGracePeriodSeconds: 0
            containers: [{name: app, image: "localhost/probe:1", imagePullPolicy: IfNotPresent}]
      """
    When component webhook is started
    Then Pod "shop/web-0" has annotation "rt-bootstrapper.kyma-project.io/defaulted=true"
    And Pod "shop/web-0" is Running

  @serial @node @slow
  Scenario: A missed Pod is not evicted against its PodDisruptionBudget
    Given component webhook is stopped
    And PodDisruptionBudget "shop/one" exists with:
      """
      spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}
      """
    And StatefulSet "shop/web" exists with:
      """
      spec:
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            terminationGracePeriodSeconds: 0
            containers: [{name: app, image: "localhost/probe:1", imagePullPolicy: IfNotPresent}]
      """
    And Pod "shop/web-0" is Running
    When component webhook is started
    Then metric "pod_evictions_total result=budget_exhausted" of component webhook is at least 1 in one replica
    And Pod "shop/web-0" has no annotation "rt-bootstrapper.kyma-project.io/defaulted"

  @serial @node @slow
  Scenario: A missed Pod with two PodDisruptionBudgets, which the API server never evicts, is reported
    Given component webhook is stopped
    And PodDisruptionBudget "shop/one" exists with:
      """
      spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
      """
    And PodDisruptionBudget "shop/two" exists with:
      """
      spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
      """
    And StatefulSet "shop/web" exists with:
      """
      spec:
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            terminationGracePeriodSeconds: 0
            containers: [{name: app, image: "localhost/probe:1", imagePullPolicy: IfNotPresent}]
      """
    And Pod "shop/web-0" is Running
    When component webhook is started
    Then Pod "shop/web-0" has Event "SeveralPodDisruptionBudgets" with message containing "more than one"
