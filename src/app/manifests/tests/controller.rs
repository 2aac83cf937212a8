//! The controller's manifests: least rights by mode, and no value that changes the structure.

use std::collections::BTreeSet;

use clap::Parser as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role as RbacRole};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Line, Role, documents, only, pods};

fn printed(flags: &[&str]) -> Result<Vec<Value>, clap::Error> {
    let line = Line::try_parse_from([&["manifests", "controller"], flags].concat())?;
    let Role::Controller(arguments) = line.arguments.role else {
        panic!("another role");
    };
    Ok(documents(&super::super::controller::text(&arguments)))
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
    let pod = pod(&printed(&["--direct"]).unwrap());
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
fn values_arrive_where_they_belong() {
    let objects = printed(&[
        "--direct",
        "--image=registry.example.com/controller:2",
        "--pull-secret=own",
        "--kcp-pull-secret-name=landscape",
        "--namespace=elsewhere",
        "--",
        "--kcp-cluster-trust-bundle=a.test:ctb:1",
        "--resync-period=5",
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
        "--resync-period=5",
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
