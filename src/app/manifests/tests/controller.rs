//! Tests of the manifests of the controller: least permissions for each mode, and no value that changes the structure.

use std::collections::BTreeSet;

use api::watcher::Watcher;
use clap::Parser;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role as RbacRole};
use policy::watchers::{REVIEW_PROBE_LABEL, is_for_heartbeats};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Line, Role, documents, only, pods};

/// Parser of the flags of the controller.
#[derive(Parser)]
struct DefaultArguments {
    #[command(flatten)]
    arguments: crate::cli::controller::ControllerArgs,
}

pub(super) fn printed(flags: &[&str]) -> Result<Vec<Value>, clap::Error> {
    let line = Line::try_parse_from([&["manifests", "controller"], flags].concat())?;
    let Role::Controller(arguments) = line.arguments.role else {
        panic!("another role");
    };
    Ok(documents(&super::super::controller::text(&arguments)?))
}

fn all<T: DeserializeOwned>(objects: &[Value], kind: &str) -> Vec<T> {
    objects
        .iter()
        .filter(|it| it["kind"] == kind)
        .map(|it| serde_json::from_value(it.clone()).unwrap())
        .collect()
}

fn rules(objects: &[Value]) -> Vec<PolicyRule> {
    let cluster: Vec<ClusterRole> = all(objects, "ClusterRole");
    let namespaced: Vec<RbacRole> = all(objects, "Role");
    let cluster = cluster.into_iter().flat_map(|it| it.rules.unwrap());
    cluster
        .chain(namespaced.into_iter().flat_map(|it| it.rules.unwrap()))
        .collect()
}

fn concerns(rule: &PolicyRule, resource: &str) -> bool {
    rule.resources
        .as_ref()
        .unwrap()
        .iter()
        .any(|it| it == resource)
}

fn pod(objects: &[Value]) -> PodSpec {
    let deployment: Deployment = only(objects, "Deployment", "rt-bootstrapper-controller");
    deployment.spec.template.spec.unwrap()
}

fn arguments(objects: &[Value]) -> Vec<String> {
    pods::container(pod(objects)).args.unwrap()
}

#[test]
fn the_pod_is_restricted_and_its_health_is_asked() {
    let objects = printed(&["--direct"]).unwrap();
    let deployment: Deployment = only(&objects, "Deployment", "rt-bootstrapper-controller");
    let labels = deployment.spec.template.metadata.unwrap().labels;
    assert_eq!(labels.unwrap()["sidecar.istio.io/inject"], "false");
    let pod = pod(&objects);
    pods::assert_restricted(pod.clone());
    assert_eq!(pod.volumes, None);
    let container = pods::container(pod);
    pods::assert_command(container.command.clone(), "controller");
    pods::assert_probes(container);
}

#[test]
fn the_image_starts_the_role() {
    pods::assert_image_starts("controller");
}

#[test]
fn with_signals_alone_no_kubeconfig_can_be_read() {
    let objects = printed(&[]).unwrap();
    assert!(arguments(&objects).contains(&"--controllers=signal".to_owned()));
    for rule in rules(&objects).iter().filter(|it| concerns(it, "secrets")) {
        let names = rule.resource_names.clone().unwrap_or_default();
        assert_eq!(names, ["registry-credentials"]);
        let verbs: BTreeSet<&str> = rule.verbs.iter().map(String::as_str).collect();
        assert_eq!(verbs, BTreeSet::from(["list", "watch"]));
    }
}

#[test]
fn direct_mode_reads_kubeconfigs_and_writes_no_secret() {
    let objects = printed(&["--direct"]).unwrap();
    assert!(arguments(&objects).contains(&"--controllers=signal,direct".to_owned()));
    let secrets: Vec<PolicyRule> = rules(&objects)
        .into_iter()
        .filter(|it| concerns(it, "secrets"))
        .collect();
    assert!(secrets.iter().any(|it| it.resource_names.is_none()));
    let writes = ["create", "update", "patch", "delete", "*"];
    for rule in &secrets {
        assert!(
            rule.verbs
                .iter()
                .all(|verb| !writes.contains(&verb.as_str()))
        );
    }
}

#[rstest]
#[case::signal(&[])]
#[case::direct(&["--direct"])]
#[case::watchers(&["--watchers"])]
#[case::all(&["--", "--controllers=*"])]
fn no_right_is_a_wildcard_and_every_role_is_bound(#[case] flags: &[&str]) {
    let objects = printed(flags).unwrap();
    for rule in rules(&objects) {
        let lists = [
            rule.api_groups.clone(),
            rule.resources.clone(),
            Some(rule.verbs.clone()),
        ];
        for word in lists.into_iter().flatten().flatten() {
            assert_ne!(word, "*", "{rule:?}");
        }
    }
    let named = |kind: &str, path: &str| -> BTreeSet<String> {
        objects
            .iter()
            .filter(|it| it["kind"] == kind)
            .map(|it| it.pointer(path).unwrap().as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        named("Role", "/metadata/name"),
        named("RoleBinding", "/roleRef/name")
    );
    assert_eq!(
        named("ClusterRole", "/metadata/name"),
        named("ClusterRoleBinding", "/roleRef/name")
    );
}

#[test]
fn values_are_rendered_into_their_fields() {
    let objects = printed(&[
        "--direct",
        "--image=registry.example.com/controller:2",
        "--controller-image-pull-secret=own",
        "--kcp-pull-secret-name=landscape",
        "--namespace=elsewhere",
        "--",
        "--kcp-cluster-trust-bundle=a.test:ctb:1",
        "--sync-period=5s",
    ])
    .unwrap();
    let pod = pod(&objects);
    let image = pod.containers[0].image.as_deref();
    assert_eq!(image, Some("registry.example.com/controller:2"));
    let secrets = pod.image_pull_secrets.unwrap();
    assert_eq!(secrets[0].name, "own");
    let arguments = arguments(&objects);
    for flag in [
        "--kcp-cluster-trust-bundle=a.test:ctb:1",
        "--sync-period=5s",
        "--kcp-pull-secret-name=landscape",
    ] {
        assert!(arguments.contains(&flag.to_owned()), "{arguments:?}");
    }
    for object in &objects {
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == "elsewhere", "{object}");
    }
    let named = |rule: &PolicyRule| rule.resource_names == Some(vec!["landscape".to_owned()]);
    assert!(
        rules(&objects)
            .iter()
            .any(|it| concerns(it, "secrets") && named(it))
    );
}

/// The default namespace is part of many names, but must not be replaced in values of a user.
#[test]
fn flag_values_that_hold_the_default_namespace_are_printed_unchanged() {
    let objects = printed(&[
        "--namespace=elsewhere",
        "--kcp-pull-secret-name=kcp-system-pull",
        "--image=r.test/kcp-system/controller:1",
        "--",
        "--kcp-config-name=kcp-system-config",
        "--kcp-cluster-trust-bundle=kcp-system-roots",
    ])
    .unwrap();
    let arguments = arguments(&objects);
    for flag in [
        "--kcp-cluster-trust-bundle=kcp-system-roots",
        "--kcp-config-name=kcp-system-config",
        "--kcp-pull-secret-name=kcp-system-pull",
    ] {
        assert!(arguments.contains(&flag.to_owned()), "{arguments:?}");
    }
    let image = pod(&objects).containers.remove(0).image;
    assert_eq!(image.as_deref(), Some("r.test/kcp-system/controller:1"));
}

/// A source that the Role does not name cannot be read.
#[test]
fn role_names_the_sources_that_the_flags_name() {
    let flags = [
        "--",
        "--kcp-config-name=ours",
        "--kcp-pull-secret-name=pulls",
    ];
    let objects = printed(&flags).unwrap();
    let named = |resource: &str| -> BTreeSet<String> {
        let all = rules(&objects);
        let readable = all
            .iter()
            .filter(|it| concerns(it, resource) && it.verbs == ["list", "watch"]);
        readable
            .flat_map(|it| it.resource_names.clone().unwrap())
            .collect()
    };
    assert_eq!(named("configmaps"), BTreeSet::from(["ours".to_owned()]));
    assert_eq!(named("secrets"), BTreeSet::from(["pulls".to_owned()]));
}

/// A missing list of names would permit access to all Secrets.
#[test]
fn role_without_a_pull_secret_has_no_right_to_all_secrets() {
    for rule in rules(&printed(&["--", "--kcp-pull-secret-name="]).unwrap()) {
        let names = rule.resource_names.clone().unwrap_or_default();
        let one = !names.is_empty() && names.iter().all(|it| !it.is_empty());
        assert!(one || !concerns(&rule, "secrets"), "{rule:?}");
    }
}

#[rstest]
#[case::direct_alone(&["--direct", "--", "--controllers=direct"], "--controllers=direct")]
#[case::all(&["--direct", "--", "--controllers=*"], "--controllers=*")]
#[case::by_the_flag_alone(&["--", "--controllers=signal,direct"], "--controllers=signal,direct")]
fn controllers_of_the_user_are_printed_once_with_the_rights_of_direct_mode(
    #[case] flags: &[&str],
    #[case] expected: &str,
) {
    let objects = printed(flags).unwrap();
    let mut arguments = arguments(&objects);
    arguments.retain(|it| it.starts_with("--controllers"));
    assert_eq!(arguments, [expected]);
    let roles: Vec<RbacRole> = all(&objects, "Role");
    let direct = Some("rt-bootstrapper-controller-direct");
    assert!(roles.iter().any(|it| it.metadata.name.as_deref() == direct));
}

#[rstest]
#[case::unknown(&["--", "--no-such-flag=1"])]
#[case::bad_value(&["--", "--max-failures=many"])]
#[case::no_value(&["--", "--kcp-config-name"])]
#[case::another_part(&["--", "--controllers=signals"])]
#[case::no_part(&["--", "--controllers=signal,-signal"])]
#[case::twice(&["--", "--max-failures=1", "--max-failures=2"])]
#[case::list_twice(&["--", "--controllers=signal", "--controllers=direct"])]
#[case::before_and_after(&["--kcp-pull-secret-name=a", "--", "--kcp-pull-secret-name=b"])]
#[case::direct_without_its_part(&["--direct", "--", "--controllers=signal"])]
#[case::watchers_without_its_part(&["--watchers", "--", "--controllers=*,-watchers"])]
#[case::namespace(&["--", "--namespace=other"])]
#[case::port(&["--", "--metrics-bind-address=127.0.0.1:9"])]
#[case::identity(&["--", "--leader-elect-identity=one-for-both"])]
fn flags_that_would_stop_the_controller_are_a_usage_error(#[case] flags: &[&str]) {
    let error = printed(flags).unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

#[rstest]
#[case::no_flag(&["--", "word"])]
#[case::quote(&["--", "--a=\"b"])]
#[case::line(&["--", "--a=b\n"])]
#[case::separator(&["--", "--a---b"])]
#[case::image(&["--image", "UPPER CASE"])]
#[case::namespace(&["--namespace", "a.b"])]
fn what_would_change_the_structure_is_refused(#[case] flags: &[&str]) {
    assert!(printed(flags).is_err());
}

#[rstest]
#[case::watchers(&["--watchers"], "--controllers=signal,watchers", false)]
#[case::both(&["--direct", "--watchers"], "--controllers=signal,direct,watchers", true)]
#[case::all(&["--", "--controllers=*"], "--controllers=*", true)]
fn watchers_may_write_virtual_services_and_read_gateways(
    #[case] flags: &[&str],
    #[case] expected: &str,
    #[case] is_direct: bool,
) {
    let objects = printed(flags).unwrap();
    assert!(arguments(&objects).contains(&expected.to_owned()));
    let verbs = |resource: &str| -> Vec<String> {
        let all = rules(&objects);
        let found = all.iter().filter(|it| concerns(it, resource));
        found.flat_map(|it| it.verbs.clone()).collect()
    };
    assert_eq!(verbs("gateways"), ["list", "watch"]);
    assert!(verbs("virtualservices").contains(&"update".to_owned()));
    assert_eq!(verbs("controllerrevisions").is_empty(), !is_direct);
}

#[test]
fn without_watchers_there_is_no_right_to_routes() {
    let objects = printed(&["--direct", "--", "--controllers=*,-watchers"]).unwrap();
    assert!(
        !rules(&objects)
            .iter()
            .any(|it| concerns(it, "virtualservices"))
    );
}

#[test]
fn the_ca_is_printed_with_the_watchers() {
    let flags = ["--watchers", "--", "--istio-namespace=mesh"];
    let objects = printed(&flags).unwrap();
    let found: Vec<(&str, &str)> = objects
        .iter()
        .filter(|it| it["apiVersion"] == "cert-manager.io/v1")
        .map(|it| {
            (
                it["kind"].as_str().unwrap(),
                it["metadata"]["namespace"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("Issuer", "mesh"),
            ("Certificate", "mesh"),
            ("Issuer", "mesh")
        ]
    );
    let key = |objects: &[Value]| {
        let ca = objects.iter().find(|it| it["spec"]["isCA"] == true);
        ca.unwrap()["spec"]["privateKey"].clone()
    };
    let ecdsa = json!({"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"});
    assert_eq!(key(&objects), ecdsa);
    // cert-manager would issue the CA of lifecycle-manager again if its algorithm changed.
    let flags = ["--watchers", "--", "--certificate-key-algorithm=rsa4096"];
    let rsa = json!({"algorithm": "RSA", "size": 4096, "rotationPolicy": "Always"});
    assert_eq!(key(&printed(&flags).unwrap()), rsa);
    let role: RbacRole = only(&objects, "Role", "rt-bootstrapper-controller-certificates");
    assert_eq!(role.metadata.namespace.as_deref(), Some("mesh"));
    let objects = printed(&["--direct"]).unwrap();
    assert!(
        objects
            .iter()
            .all(|it| it["apiVersion"] != "cert-manager.io/v1")
    );
}

/// The route of heartbeats and the permitted senders: no other path leads to the listener.
#[test]
fn heartbeats_reach_the_controller_from_the_gateway_alone() {
    let flags = [
        "--watchers",
        "--namespace=kyma-kcp",
        "--",
        "--istio-namespace=mesh",
    ];
    let objects = printed(&flags).unwrap();
    let find = |kind: &str, name: &str| {
        let found = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
        objects.iter().find(found).unwrap()
    };
    let watcher: Watcher =
        serde_json::from_value(find("Watcher", "runtime-bootstrapper").clone()).unwrap();
    assert!(is_for_heartbeats(&watcher));
    let labels = watcher.spec.labels_to_watch.unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), [REVIEW_PROBE_LABEL]);
    let service = find("Service", &watcher.spec.service_info.name);
    assert_eq!(service["metadata"]["namespace"], "kyma-kcp");
    assert_eq!(watcher.spec.service_info.namespace, "kyma-kcp");
    let listener = DefaultArguments::parse_from(["controller"]).arguments;
    let port = listener.watchers.heartbeat_bind_address.port();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port);
    let policy = find("NetworkPolicy", "rt-bootstrapper-controller-events");
    let from = &policy["spec"]["ingress"][0]["from"][0];
    assert_eq!(
        from["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
        "mesh"
    );
    assert!(objects.iter().all(|it| it["kind"] != "Gateway"));
}

#[test]
fn samples_of_gateway_and_authorization_have_the_names_of_the_landscape() {
    let flags = [
        "--watchers",
        "--watcher-gateway-host=kcp.eu.example",
        "--",
        "--istio-namespace=mesh",
        "--istio-gateway-namespace=gateways",
    ];
    let objects = printed(&flags).unwrap();
    let of = |kind: &str| objects.iter().find(|it| it["kind"] == kind).unwrap();
    let gateway = of("Gateway");
    assert_eq!(gateway["metadata"]["namespace"], "gateways");
    let server = &gateway["spec"]["servers"][0];
    assert_eq!(server["hosts"], json!(["kcp.eu.example"]));
    assert_eq!(
        server["tls"],
        json!({ "mode": "MUTUAL", "credentialName": "klm-istio-gateway", "minProtocolVersion": "TLSV1_3" })
    );
    let watchers = objects.iter().filter(|it| it["kind"] == "Watcher");
    for watcher in watchers {
        let selected = &watcher["spec"]["gateway"]["selector"]["matchLabels"];
        assert_eq!(*selected, gateway["metadata"]["labels"]);
    }
    let principals = "/spec/rules/0/from/0/source/principals/0";
    let principal = of("AuthorizationPolicy").pointer(principals).unwrap();
    assert!(principal.as_str().unwrap().contains("/ns/mesh/sa/"));
}

#[rstest]
#[case::without_watchers(&["--watcher-gateway-host=kcp.example"], "--watchers")]
#[case::port(&["--watchers", "--watcher-gateway-host=kcp.example:443"], "not a valid host")]
#[case::wildcard(&["--watchers", "--watcher-gateway-host=*.example"], "not a valid host")]
fn a_gateway_host_that_cannot_be_printed_is_an_error(#[case] flags: &[&str], #[case] text: &str) {
    let error = printed(flags).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

#[rstest]
#[case::webhook_resources(&["--", "--webhook-requests=memory=256Mi"], "memory")]
#[case::certificates(&["--", "--self-signed-cert-duration=240h"], "--self-signed-cert-renew-before")]
fn flags_with_which_the_controller_would_not_start_are_an_error(
    #[case] flags: &[&str],
    #[case] text: &str,
) {
    let error = printed(flags).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

/// Secrets of Kymas are read by name, and only the Secrets of the CA and the gateway are listed. A client that can create
/// and read any Secret has the permissions of each ServiceAccount of the namespace.
#[test]
fn watchers_list_and_write_no_secret_but_those_of_the_gateway() {
    let rules = rules(&printed(&["--watchers"]).unwrap());
    for rule in rules.iter().filter(|it| concerns(it, "secrets")) {
        let verbs: BTreeSet<&str> = rule.verbs.iter().map(String::as_str).collect();
        let names = rule.resource_names.clone().unwrap_or_default();
        let writes = ["create", "patch", "update"]
            .iter()
            .any(|it| verbs.contains(it));
        assert!(!writes || names == ["klm-istio-gateway"], "{rule:?}");
        let lists = verbs.contains("list") || verbs.contains("watch");
        assert!(!lists || !names.is_empty(), "{rule:?}");
    }
}

#[test]
fn gateways_are_read_in_their_own_namespace() {
    let flags = ["--watchers", "--", "--istio-gateway-namespace=istio-system"];
    let objects = printed(&flags).unwrap();
    let role: RbacRole = only(&objects, "Role", "rt-bootstrapper-controller-gateways");
    assert_eq!(role.metadata.namespace.as_deref(), Some("istio-system"));
    let flags = [
        "--watchers",
        "--namespace=other",
        "--",
        "--istio-gateway-namespace=kcp-system",
    ];
    let objects = printed(&flags).unwrap();
    let role: RbacRole = only(&objects, "Role", "rt-bootstrapper-controller-gateways");
    assert_eq!(role.metadata.namespace.as_deref(), Some("kcp-system"));
}
