//! Tests of the allowed connections if all others are denied, by the rules of NetworkPolicy: if a policy selects a Pod for
//! a direction, the Pod may use the connections that any of these policies allows, and no others.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rstest::rstest;

use super::{object, only};

type Labels = BTreeMap<String, String>;

/// The other end of a connection.
struct Peer {
    namespace: Labels,
    pod: Labels,
}

fn policies() -> Vec<NetworkPolicySpec> {
    [
        "kyma-project.io--ingress-allow-webhook-traffic",
        "kyma-project.io--rt-bootstrapper-allow-metrics-traffic",
        "kyma-project.io--rt-bootstrapper--allow-egress-to-apiserver",
    ]
    .map(|name| object::<NetworkPolicy>("NetworkPolicy", name).spec.unwrap())
    .into()
}

fn our_pod() -> Labels {
    let deployment: Deployment = object("Deployment", "rt-bootstrapper-controller-manager");
    let template = deployment.spec.template;
    template.metadata.unwrap().labels.unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Returns whether a selector matches. The selectors of this project only use `matchLabels`; this function supports no
/// other form.
fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    assert_eq!(selector.match_expressions, None);
    let wanted = selector.match_labels.iter().flatten();
    wanted
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

fn opens(ports: Option<&Vec<NetworkPolicyPort>>, protocol: &str, port: i32) -> bool {
    let listed = |it: &NetworkPolicyPort| {
        it.protocol.as_deref() == Some(protocol) && it.port == Some(IntOrString::Int(port))
    };
    ports.is_none_or(|ports| ports.iter().any(listed))
}

fn admits(peers: Option<&Vec<NetworkPolicyPeer>>, from: Option<&Peer>) -> bool {
    peers.is_none_or(|peers| {
        peers.iter().any(|peer| {
            let part = |selector: Option<&LabelSelector>, labels: &Labels| {
                selector.is_none_or(|it| selects(it, labels))
            };
            // If the other end is not a Pod (the API server, an external address), no selector matches.
            from.is_some_and(|from| {
                part(peer.namespace_selector.as_ref(), &from.namespace)
                    && part(peer.pod_selector.as_ref(), &from.pod)
            })
        })
    })
}

fn ingress(port: i32, from: Option<&Peer>) -> bool {
    policies()
        .iter()
        .filter(|it| selects(it.pod_selector.as_ref().unwrap(), &our_pod()))
        .flat_map(|it| it.ingress.iter().flatten())
        .any(|rule| opens(rule.ports.as_ref(), "TCP", port) && admits(rule.from.as_ref(), from))
}

fn egress(protocol: &str, port: i32, to: Option<&Peer>) -> bool {
    egress_of(&policies(), &our_pod(), (protocol, port), to)
}

fn egress_of(
    policies: &[NetworkPolicySpec],
    pod: &Labels,
    (protocol, port): (&str, i32),
    to: Option<&Peer>,
) -> bool {
    policies
        .iter()
        .filter(|it| selects(it.pod_selector.as_ref().unwrap(), pod))
        .flat_map(|it| it.egress.iter().flatten())
        .any(|rule| opens(rule.ports.as_ref(), protocol, port) && admits(rule.to.as_ref(), to))
}

#[rstest]
#[case::reviews(9443, true)]
#[case::metrics(8080, false)]
#[case::health(8081, false)]
#[case::anything(22, false)]
fn from_anywhere(#[case] port: i32, #[case] open: bool) {
    assert_eq!(ingress(port, None), open);
}

#[rstest]
#[case::scraper("kyma-system", "allowed", true)]
#[case::elsewhere("default", "allowed", false)]
#[case::unmarked("kyma-system", "denied", false)]
fn metrics_are_for_marked_pods_of_the_namespace(
    #[case] namespace: &str,
    #[case] mark: &str,
    #[case] open: bool,
) {
    let peer = Peer {
        namespace: labels(&[("kubernetes.io/metadata.name", namespace)]),
        pod: labels(&[("networking.kyma-project.io/metrics-scraping", mark)]),
    };
    assert_eq!(ingress(8080, Some(&peer)), open);
}

#[rstest]
#[case::service("TCP", 443, true)]
#[case::api_server("TCP", 6443, true)]
#[case::dns("UDP", 53, true)]
#[case::dns_of_long_answers("TCP", 53, true)]
#[case::dns_behind_the_translation("UDP", 8053, false)]
#[case::http("TCP", 80, false)]
#[case::quic("UDP", 443, false)]
fn to_the_api_server_and_to_names_and_nowhere_else(
    #[case] protocol: &str,
    #[case] port: i32,
    #[case] open: bool,
) {
    assert_eq!(egress(protocol, port, None), open);
}

/// Clusters in which the API server has a DNS name, and the resolvers are Pods.
#[rstest]
#[case::resolver("kube-system", "kube-dns", 8053, true)]
#[case::elsewhere("default", "kube-dns", 8053, false)]
#[case::another_pod("kube-system", "other", 8053, false)]
#[case::another_port("kube-system", "kube-dns", 9153, false)]
fn names_are_asked_of_the_resolvers_of_the_cluster(
    #[case] namespace: &str,
    #[case] app: &str,
    #[case] port: i32,
    #[case] open: bool,
) {
    let peer = Peer {
        namespace: labels(&[("kubernetes.io/metadata.name", namespace)]),
        pod: labels(&[("k8s-app", app)]),
    };
    let objects = super::controller::printed(&[]).unwrap();
    let name = "rt-bootstrapper-controller";
    let controller: Deployment = only(&objects, "Deployment", name);
    let controller = controller.spec.template.metadata.unwrap().labels;
    let policy: NetworkPolicy = only(&objects, "NetworkPolicy", name);
    let policies = [policy.spec.unwrap()];
    for protocol in ["UDP", "TCP"] {
        assert_eq!(egress(protocol, port, Some(&peer)), open);
        let of_controller = egress_of(
            &policies,
            controller.as_ref().unwrap(),
            (protocol, port),
            Some(&peer),
        );
        assert_eq!(of_controller, open);
    }
}

#[rstest]
#[case::reviews("rt-bootstrapper-webhook-service", 443, "webhook")]
#[case::metrics("rt-bootstrapper-controller-manager-metrics-service", 8080, "metrics")]
fn a_service_leads_to_a_port_of_our_pod(
    #[case] name: &str,
    #[case] port: i32,
    #[case] target: &str,
) {
    let service: Service = object("Service", name);
    let spec = service.spec.unwrap();
    let pod = our_pod();
    assert!(
        spec.selector
            .unwrap()
            .iter()
            .all(|(key, value)| pod.get(key) == Some(value))
    );
    let [entry] = spec.ports.unwrap().try_into().unwrap();
    assert_eq!(entry.port, port);
    assert_eq!(entry.target_port, Some(IntOrString::String(target.into())));
}
