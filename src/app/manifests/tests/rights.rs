//! Tests of least permissions: no wildcard, and no Secret without its name.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject,
};
use rstest::rstest;

use serde_json::{Value, json};

use super::{documents, object, printed};

const ROLE: &str = "rt-bootstrapper-manager-role";
const RESTARTER: &str = "rt-bootstrapper-pod-restarter-role";
const BINDING: &str = "rt-bootstrapper-manager-rolebinding";
const ACCOUNT: &str = "rt-bootstrapper-controller-manager";

fn cluster_rules() -> Vec<PolicyRule> {
    let role: ClusterRole = object("ClusterRole", ROLE);
    role.rules.unwrap()
}

fn namespace_rules() -> Vec<PolicyRule> {
    let role: Role = object("Role", ROLE);
    role.rules.unwrap()
}

/// Returns `group/resource [names] verb` for each combination.
fn flat(rules: &[PolicyRule]) -> BTreeSet<String> {
    let mut flat = BTreeSet::new();
    for rule in rules {
        let names = rule.resource_names.clone().unwrap_or_default().join(",");
        for group in rule.api_groups.as_ref().unwrap() {
            for resource in rule.resources.as_ref().unwrap() {
                for verb in &rule.verbs {
                    flat.insert(format!("{group}/{resource} [{names}] {verb}"));
                }
            }
        }
    }
    flat
}

fn expected(lines: &[(&str, &str)]) -> BTreeSet<String> {
    lines
        .iter()
        .flat_map(|(what, verbs)| verbs.split(' ').map(move |verb| format!("{what} {verb}")))
        .collect()
}

/// The module documentation lists the permissions: `webhook::certificate`, `webhook::pull_secret_sync`, `webhook::watches`,
/// `webhook::repairs`, `component_base::lease`.
#[test]
fn the_rights_are_those_that_the_modules_ask_for() {
    assert_eq!(
        flat(&cluster_rules()),
        expected(&[
            ("/namespaces []", "get list watch"),
            ("/pods []", "list watch"),
            (
                "/secrets [registry-credentials]",
                "create delete get list patch watch"
            ),
            (
                "certificates.k8s.io/clustertrustbundles []",
                "get list watch"
            ),
            (
                "admissionregistration.k8s.io/mutatingwebhookconfigurations \
                 [rt-bootstrapper-mutating-webhook-configuration]",
                "get list patch watch"
            ),
            (
                "admissionregistration.k8s.io/mutatingadmissionpolicies \
                 [rt-bootstrapper-mutating-admission-policy]",
                "delete"
            ),
            (
                "admissionregistration.k8s.io/mutatingadmissionpolicybindings \
                 [rt-bootstrapper-mutating-admission-policy]",
                "delete"
            ),
            ("events.k8s.io/events []", "create patch"),
        ])
    );
    assert_eq!(
        flat(&namespace_rules()),
        expected(&[
            ("/configmaps [rt-bootstrapper-config]", "get list watch"),
            (
                "/secrets [rt-bootstrapper-webhook-cert]",
                "create delete get list patch watch"
            ),
            ("/pods []", "create"),
            ("/secrets [rt-bootstrapper-revisions]", "create get patch"),
            (
                "coordination.k8s.io/leases [rt-bootstrapper-webhook]",
                "get update"
            ),
            ("coordination.k8s.io/leases []", "create"),
        ])
    );
    let restarter: ClusterRole = object("ClusterRole", RESTARTER);
    assert_eq!(
        flat(&restarter.rules.unwrap()),
        expected(&[("/pods/eviction []", "create")])
    );
}

/// A client that can write a MutatingAdmissionPolicy can change any object, so the permission is only granted with the flag.
#[rstest]
#[case::default(&[], "delete")]
#[case::off(&["--mutating-admission-policy=off"], "delete")]
#[case::on(&["--mutating-admission-policy=on"], "create delete get list patch update watch")]
fn the_policy_may_be_written_where_it_is_switched_on(#[case] flags: &[&str], #[case] verbs: &str) {
    let objects = documents(&printed(flags).unwrap());
    let roles = objects.into_iter().filter(|it| it["kind"] == "ClusterRole");
    let roles = roles.map(|it| serde_json::from_value::<ClusterRole>(it).unwrap());
    let rules: Vec<PolicyRule> = roles.flat_map(|it| it.rules.unwrap()).collect();
    let all = flat(&rules);
    let own = all
        .into_iter()
        .filter(|it| it.contains("/mutatingadmissionpolicies "));
    let wanted = "admissionregistration.k8s.io/mutatingadmissionpolicies [rt-bootstrapper-mutating-admission-policy]";
    assert_eq!(own.collect::<BTreeSet<_>>(), expected(&[(wanted, verbs)]));
}

/// Evictions are allowed in the namespace of the webhook, and in the namespaces of a flag. By default there are none.
#[test]
fn evictions_are_allowed_namespace_by_namespace() {
    let bindings = |flags: &[&str]| -> Vec<String> {
        let objects = documents(&printed(flags).unwrap());
        let bindings = objects.iter().filter(|it| {
            it["kind"].as_str().unwrap().ends_with("RoleBinding")
                && it["roleRef"] == json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RESTARTER})
        });
        let bindings: Vec<&Value> = bindings.collect();
        for binding in &bindings {
            assert_eq!(binding["kind"], "RoleBinding");
            let subject =
                json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kyma-system"}]);
            assert_eq!(binding["subjects"], subject);
        }
        let namespaces = bindings
            .iter()
            .map(|it| it["metadata"]["namespace"].as_str());
        namespaces.map(|it| it.unwrap().to_owned()).collect()
    };
    assert_eq!(bindings(&[]), ["kyma-system"]);
    let flag = "--pod-restart-namespaces=istio-system,kyma-system,shop";
    assert_eq!(bindings(&[flag]), ["kyma-system", "istio-system", "shop"]);
}

#[rstest]
#[case::cluster(cluster_rules())]
#[case::namespace(namespace_rules())]
fn no_rule_is_wider_than_it_looks(#[case] rules: Vec<PolicyRule>) {
    assert!(!rules.is_empty());
    for rule in rules {
        let resources = rule.resources.unwrap();
        let words = [&rule.verbs, rule.api_groups.as_ref().unwrap(), &resources];
        assert!(
            !words
                .iter()
                .any(|list| list.iter().any(|word| word.contains('*')))
        );
        assert_eq!(rule.non_resource_urls, None);
        if resources.iter().any(|it| it == "secrets") {
            assert!(rule.resource_names.is_some_and(|names| !names.is_empty()));
        }
    }
}

#[test]
fn the_bindings_join_the_roles_to_the_account_that_mounts_no_token_by_itself() {
    let cluster: ClusterRoleBinding = object("ClusterRoleBinding", BINDING);
    let namespace: RoleBinding = object("RoleBinding", BINDING);
    let account: ServiceAccount = object("ServiceAccount", ACCOUNT);
    assert_eq!(account.automount_service_account_token, Some(false));
    let subject = Subject {
        kind: "ServiceAccount".into(),
        name: ACCOUNT.into(),
        namespace: Some("kyma-system".into()),
        ..Subject::default()
    };
    assert_eq!(cluster.subjects, Some(vec![subject.clone()]));
    assert_eq!(namespace.subjects, Some(vec![subject]));
    let names = [cluster.role_ref, namespace.role_ref].map(|it| (it.kind, it.name));
    assert_eq!(
        names,
        [
            ("ClusterRole".to_owned(), ROLE.to_owned()),
            ("Role".to_owned(), ROLE.to_owned())
        ]
    );
}
