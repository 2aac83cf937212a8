Feature: Pods that were created while no replica of the webhook answered
  The API server admits such a Pod unchanged. The leader finds it when it runs again.

  Background:
    Given Namespace "shop" with annotation "rt-cfg.kyma-project.io/set-fips-mode=true"

  @serial @node @slow
  Scenario: A missed Pod is reported by a metric and an Event, and left alone
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
    Then metric "missed_pods EnvVarAdded" of component webhook is at least 1 in one replica
    And Pod "shop/web-0" has Event "MissedEnvVarAdded" with message containing "KYMA_FIPS_MODE_ENABLED"
    And Pod "shop/web-0" has no annotation "rt-bootstrapper.kyma-project.io/defaulted"

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
