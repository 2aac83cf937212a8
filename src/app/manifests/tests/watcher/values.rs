//! Tests of values from a user, including hostile values.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use rstest::rstest;
use serde_json::Value;

use super::{Folder, WATCHERS, documents, objects, printed};
use crate::manifests::tests::only;

fn container(objects: &[Value]) -> Container {
    let deployment: Deployment = only(objects, "Deployment", "skr-webhook");
    let pod = deployment.spec.template.spec.unwrap();
    let [container] = pod.containers.try_into().unwrap();
    container
}

fn variable(objects: &[Value], name: &str) -> Option<String> {
    let variables = container(objects).env.unwrap();
    variables.into_iter().find(|it| it.name == name)?.value
}

#[test]
fn values_are_rendered_into_their_fields() {
    let folder = Folder::with(&[("w.yaml", WATCHERS)]);
    let watchers = folder.flag("--watchers-file", "w.yaml");
    let text = printed(&[
        "--kcp-addr=kcp.test:8443",
        &watchers,
        "--image=registry.test:5000/watcher:2",
        "--watcher-image-pull-secret=own",
        "--namespace=elsewhere",
        "--delivery-mode=sync",
        "--",
        "--follow-up-delay=7s",
        "--spool-fsync=always",
    ])
    .unwrap();
    assert!(
        !text.contains("kyma-system"),
        "another namespace is meant everywhere"
    );
    let objects = documents(&text);
    let container = container(&objects);
    assert_eq!(
        container.image.as_deref(),
        Some("registry.test:5000/watcher:2")
    );
    assert_eq!(
        container.args.unwrap(),
        [
            "--health-probe-bind-address=:8081",
            "--spool-dir=/var/spool/watcher",
            "--delivery-mode=sync",
            "--follow-up-delay=7s",
            "--spool-fsync=always",
        ]
    );
    assert_eq!(variable(&objects, "KCP_ADDR").unwrap(), "kcp.test:8443");
    assert_eq!(
        variable(&objects, "WATCHER_MANAGERS").unwrap(),
        "lifecycle-manager,scaler"
    );
    let deployment: Deployment = only(&objects, "Deployment", "skr-webhook");
    let secrets = deployment
        .spec
        .template
        .spec
        .unwrap()
        .image_pull_secrets
        .unwrap();
    assert_eq!(secrets[0].name, "own");
}

#[test]
fn flag_values_that_hold_words_of_the_files_are_printed_unchanged() {
    let flags = [
        "--kcp-addr=kyma-system.test",
        "--namespace=elsewhere",
        "--",
        "--managers=kcp.example.com,kyma-system",
    ];
    let objects = documents(&printed(&flags).unwrap());
    let address = variable(&objects, "KCP_ADDR");
    assert_eq!(address.as_deref(), Some("kyma-system.test"));
    let arguments = container(&objects).args.unwrap();
    let managers = "--managers=kcp.example.com,kyma-system".to_owned();
    assert!(arguments.contains(&managers), "{arguments:?}");
}

#[rstest]
#[case::unknown(&["--", "--no-such-flag=1"])]
#[case::bad_value(&["--", "--spool-fsync=sometimes"])]
#[case::twice(&["--", "--spool-fsync=never", "--spool-fsync=always"])]
#[case::of_the_manifests(&["--", "--delivery-mode=sync"])]
#[case::port(&["--", "--metrics-port=9"])]
#[case::spool(&["--", "--spool-dir=/tmp"])]
fn flags_that_would_stop_the_watcher_are_a_usage_error(#[case] flags: &[&str]) {
    let flags = [&["--kcp-addr=kcp.test"], flags].concat();
    let error = printed(&flags).unwrap_err();
    let error = error.downcast_ref::<clap::Error>().unwrap();
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn without_watchers_no_manager_is_named() {
    assert_eq!(variable(&objects(&[]), "WATCHER_MANAGERS"), None);
}

#[rstest]
#[case::scheme("--kcp-addr=https://kcp.test")]
#[case::path("--kcp-addr=kcp.test/v2")]
#[case::quote("--kcp-addr=kcp.test\"")]
#[case::line("--kcp-addr=kcp.test\n")]
#[case::separator("--kcp-addr=a---b.test")]
#[case::user("--kcp-addr=me@kcp.test")]
#[case::port("--kcp-addr=kcp.test:65536")]
#[case::empty("--kcp-addr=")]
fn an_address_that_is_none_is_a_usage_error(#[case] flag: &str) {
    let error = printed(&[flag]).unwrap_err();
    assert!(error.downcast_ref::<clap::Error>().is_some(), "{error}");
}

#[rstest]
#[case::no_flag(&["--", "word"])]
#[case::quote(&["--", "--a=\"b"])]
#[case::separator(&["--", "--a---b"])]
#[case::image(&["--image", "UPPER CASE"])]
#[case::pull_secret(&["--watcher-image-pull-secret", "a/b"])]
#[case::namespace(&["--namespace", "a.b"])]
fn what_would_change_the_structure_is_refused(#[case] flags: &[&str]) {
    let flags = [&["--kcp-addr=kcp.test"], flags].concat();
    assert!(printed(&flags).is_err());
}

#[test]
fn kcp_has_to_be_named() {
    assert!(printed(&[]).is_err());
}

#[test]
fn the_files_name_the_version_that_they_belong_to() {
    let objects = objects(&[]);
    let deployment: Deployment = only(&objects, "Deployment", "skr-webhook");
    let version = env!("CARGO_PKG_VERSION");
    let key = "app.kubernetes.io/version";
    assert_eq!(deployment.metadata.labels.unwrap()[key], version);
    let template = deployment.spec.template.metadata.unwrap();
    assert_eq!(template.labels.unwrap()[key], version);
    let image = container(&objects).image.unwrap();
    assert_eq!(
        image,
        format!("ghcr.io/kyma-project/runtime-bootstrapper-watcher:{version}")
    );
}
