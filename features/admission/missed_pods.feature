Feature: Pods that were created while no replica of the webhook answered
  The API server admits such a Pod unchanged. The leader finds it when it runs again.

  Background:
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"

  @serial @node @slow
  Scenario: A missed Pod is reported by an Event and left alone, also where the webhook may evict Pods
    Given RoleBinding "shop/pod-restarter" exists with:
      """
      roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rt-bootstrapper-pod-restarter-role}
      subjects: [{kind: ServiceAccount, name: rt-bootstrapper-controller-manager, namespace: kyma-system}]
      """
    And component webhook is stopped
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
    Then Pod "shop/web-0" has Event "MissedEnvVarAdded" with message containing "KYMA_FIPS_MODE_ENABLED"
    And Pod "shop/web-0" is not modified for 15 seconds

  @serial @node @slow
  Scenario: A missed Pod is left alone in a Namespace where the webhook may not evict Pods
    Given component webhook runs with flags "--evict-missed-pods"
    And component webhook is stopped
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
    Then Pod "shop/web-0" has Event "EvictionForbidden" with message containing "pods/eviction"
    And metric "pod_eviction_forbidden_namespaces" of component webhook is at least 1 in one replica

  @serial @cluster @slow
  Scenario: A thousand missed Pods are found within two minutes
    Given component webhook is stopped
    When ReplicaSet "shop/one" is created with:
      """
      spec:
        replicas: 500
        selector: {matchLabels: {app: one}}
        template:
          metadata: {labels: {app: one}}
          spec: {nodeSelector: {no.test/node: ""}, containers: [{name: app, image: "replace.me/app:1"}]}
      """
    Then field status.replicas of ReplicaSet "shop/one" is 500
    When ReplicaSet "shop/two" is created with:
      """
      spec:
        replicas: 500
        selector: {matchLabels: {app: two}}
        template:
          metadata: {labels: {app: two}}
          spec: {nodeSelector: {no.test/node: ""}, containers: [{name: app, image: "replace.me/app:1"}]}
      """
    Then field status.replicas of ReplicaSet "shop/two" is 500
    When component webhook is started
    Then metric "missed_pods EnvVarAdded" of component webhook is at least 1000 in one replica within 120 seconds
