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

/// The namespace's default is part of many names; in what a user gives it is text like any other.
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

/// No list of names would be a right to every Secret.
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
