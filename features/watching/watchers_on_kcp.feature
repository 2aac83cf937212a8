Feature: Watchers on KCP
  The controller leads events to the component that a Watcher names, and requests a certificate for each Kyma. cert-manager runs on
  KCP; of Istio there are the definitions only.

  Scenario: A Watcher gets a VirtualService with the hosts of its Gateways
    Given Gateway "kcp-system/route" exists with:
      """
      metadata: {labels: {test: route}}
      spec: {servers: [{hosts: [kcp.example], port: {name: https, number: 443, protocol: HTTPS}, tls: {mode: MUTUAL, credentialName: route}}]}
      """
    When Watcher "route" is created with:
      """
      spec:
        manager: one
        resourceToWatch: {group: apps, version: "*", resource: deployments/scale}
        field: spec
        serviceInfo: {name: events, namespace: kcp-system, port: 8082}
        gateway: {selector: {matchLabels: {test: route}}}
      """
    Then VirtualService "kcp-system/route" matches:
      """
      spec:
        hosts: [kcp.example]
        http: [{match: [{uri: {prefix: /v2/one/event}}], route: [{destination: {host: events.kcp-system.svc.cluster.local, port: {number: 8082}}}]}]
      """
    And Watcher "route" matches:
      """
      status: {state: Ready, conditions: [{type: VirtualService, status: "True"}]}
      """
    When VirtualService "kcp-system/route" is deleted
    Then VirtualService "kcp-system/route" exists

  Scenario: A Watcher whose selector matches two Gateways has the hosts of both
    Given Gateway "kcp-system/both-1" exists with:
      """
      metadata: {labels: {test: both}}
      spec: {servers: [{hosts: [one.example], port: {name: https, number: 443, protocol: HTTPS}, tls: {mode: MUTUAL, credentialName: both}}]}
      """
    And Gateway "kcp-system/both-2" exists with:
      """
      metadata: {labels: {test: both}}
      spec: {servers: [{hosts: [kcp-system/one.example, two.example], port: {name: https, number: 443, protocol: HTTPS}, tls: {mode: MUTUAL, credentialName: both}}]}
      """
    When Watcher "both" is created with:
      """
      spec:
        manager: both
        resourceToWatch: {group: "", version: v1, resource: configmaps}
        field: spec
        serviceInfo: {name: events, namespace: kcp-system, port: 8082}
        gateway: {selector: {matchLabels: {test: both}}}
      """
    Then VirtualService "kcp-system/both" matches:
      """
      spec: {gateways: [kcp-system/both-1, kcp-system/both-2], hosts: [one.example, two.example]}
      """
    When Gateway "kcp-system/both-1" is deleted
    Then field spec.gateways of VirtualService "kcp-system/both" is ["kcp-system/both-2"]
    And field spec.hosts of VirtualService "kcp-system/both" is ["one.example", "two.example"]

  Scenario: A Watcher without a Gateway is in error until there is one
    Given Watcher "waiting" exists with:
      """
      metadata: {labels: {operator.kyma-project.io/managed-by: two}}
      spec:
        resourceToWatch: {group: "", version: v1, resource: configmaps}
        field: spec
        serviceInfo: {name: events, namespace: kcp-system, port: 8082}
        gateway: {selector: {matchLabels: {test: waiting}}}
      """
    Then Watcher "waiting" has Event "WatcherGatewayNotFound" with message containing "no Gateway"
    When Gateway "kcp-system/waiting" is created with:
      """
      metadata: {labels: {test: waiting}}
      spec: {servers: [{hosts: [two.example], port: {name: https, number: 443, protocol: HTTPS}, tls: {mode: MUTUAL, credentialName: waiting}}]}
      """
    Then Watcher "waiting" matches:
      """
      status: {state: Ready}
      """
    And VirtualService "kcp-system/waiting" exists
    When Watcher "waiting" is deleted
    Then VirtualService "kcp-system/waiting" is deleted

  Scenario: A Kyma gets a certificate for its runtime, and leaves none
    When Kyma "kcp-system/k-1" is created with:
      """
      metadata:
        labels: {kyma-project.io/runtime-id: id-1}
        annotations: {skr-domain: one.kyma.example}
      """
    Then Certificate "istio-system/k-1-webhook-tls" matches:
      """
      spec: {commonName: id-1, dnsNames: [one.kyma.example], secretName: k-1-webhook-tls}
      status: {conditions: [{type: Ready, status: "True"}]}
      """
    And Secret "istio-system/k-1-webhook-tls" on KCP exists
    When Kyma "kcp-system/k-1" is deleted
    Then Certificate "istio-system/k-1-webhook-tls" is deleted
    And Secret "istio-system/k-1-webhook-tls" on KCP is deleted

  Scenario: A Certificate that another client edits or deletes is restored
    Given Kyma "kcp-system/k-3" exists with:
      """
      metadata:
        labels: {kyma-project.io/runtime-id: id-3}
        annotations: {skr-domain: three.kyma.example}
      """
    And Certificate "istio-system/k-3-webhook-tls" exists
    When Certificate "istio-system/k-3-webhook-tls" is patched with:
      """
      spec: {commonName: other}
      """
    Then field spec.commonName of Certificate "istio-system/k-3-webhook-tls" is "id-3"
    When Certificate "istio-system/k-3-webhook-tls" is deleted
    Then Certificate "istio-system/k-3-webhook-tls" matches:
      """
      status: {conditions: [{type: Ready, status: "True"}]}
      """

  Scenario: The Secret of a certificate that another client edits or deletes is issued again
    When Kyma "kcp-system/k-4" is created with:
      """
      metadata:
        labels: {kyma-project.io/runtime-id: id-4}
        annotations: {skr-domain: four.kyma.example}
      """
    Then field status.revision of Certificate "istio-system/k-4-webhook-tls" is 1
    When Secret "istio-system/k-4-webhook-tls" on KCP is patched with:
      """
      data: {tls.crt: Z2FyYmFnZQ==}
      """
    Then field status.revision of Certificate "istio-system/k-4-webhook-tls" is 2
    When Secret "istio-system/k-4-webhook-tls" on KCP is deleted
    Then field status.revision of Certificate "istio-system/k-4-webhook-tls" is 3
    And Secret "istio-system/k-4-webhook-tls" on KCP exists

  # cert-manager issues the CA again, with another key.
  @serial
  Scenario: After a rotation of the CA the certificates of runtimes are renewed, and the gateway keeps its own
    Given Gateway "kcp-system/rotation" exists with:
      """
      spec: {servers: [{hosts: [kcp.example], port: {name: https, number: 443, protocol: HTTPS}, tls: {mode: MUTUAL, credentialName: klm-istio-gateway}}]}
      """
    When Kyma "kcp-system/k-2" is created with:
      """
      metadata:
        labels: {kyma-project.io/runtime-id: id-2}
        annotations: {skr-domain: two.kyma.example}
      """
    Then field status.revision of Certificate "istio-system/k-2-webhook-tls" is 1
    And Secret "istio-system/klm-istio-gateway" on KCP exists
    When subresource status of Certificate "istio-system/klm-watcher-serving" is patched with:
      """
      status: {conditions: [{type: Issuing, status: "True", reason: ManuallyTriggered, message: test, lastTransitionTime: "2026-01-01T00:00:00Z"}]}
      """
    Then field status.revision of Certificate "istio-system/k-2-webhook-tls" is 2
    And field status.revision of Certificate "istio-system/klm-watcher-gateway" is 1
