//! Tests of the selection of Runtimes that are signaled.

use std::num::NonZeroU32;

use kube::core::Selector;
use rstest::rstest;
use serde_json::json;
use testkit::apiserver::kinds;

use super::env::*;

const MODE: &str = "rt-bootstrapper.kyma-project.io/mode";

#[tokio::test(start_paused = true)]
async fn only_affected_runtimes_are_signalled() {
    let mut env = Env::new(&["plain"]);
    env.settings.selector = Selector::from_iter([("plan", "aws")]);
    let kcp = &env.kcp;
    kcp.put(labelled("signal", MODE, "signal"));
    kcp.put(labelled("direct", MODE, "direct"));
    kcp.put(labelled("trial", "plan", "trial"));
    let mut deleting = runtime("deleting");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
    kcp.put(deleting);
    let mut terminating = runtime("terminating");
    terminating["status"]["state"] = json!("Terminating");
    kcp.put(terminating);
    kcp.put(runtime("lifecycle"));
    kcp.put(bootstrapper("lifecycle"));
    let mut unnamed = runtime("without-id");
    unnamed["metadata"]["labels"] = json!({"plan": "aws"});
    kcp.put(unnamed);
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.quiet().await;
    assert_eq!(env.signalled(), ["plain", "signal", "without-id"]);
}

/// Sources, Runtimes, resources and the state are all in the namespace of the controller.
#[tokio::test(start_paused = true)]
async fn all_of_it_may_be_in_another_namespace() {
    let kcp = ControlPlane::in_namespace(Mode::Signal, "elsewhere");
    let mut env = Env::on(kcp, &["a", "b"]);
    env.kcp.put(bootstrapper("b"));
    env.start().await;
    env.until("recorded", |it| {
        it.kcp.object("configmaps", STATE).is_some()
    })
    .await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    assert!(env.readiness.is_ready(), "{:?}", env.readiness.report());
}

/// The controller `direct` has removed its finalizer. A finalizer of another client does not prevent signals to the Runtime.
#[rstest]
#[case::seen_from_the_start(true)]
#[case::seen_later(false)]
#[tokio::test(start_paused = true)]
async fn a_resource_that_was_released_does_not_prevent_signals(#[case] first: bool) {
    let mut env = Env::new(&["a"]);
    let mut resource = bootstrapper("a");
    resource["metadata"]["finalizers"] = json!(["example.com/another"]);
    env.kcp.put(resource);
    if !first {
        env.start().await;
        env.quiet().await;
    }
    env.kcp.delete("runtimebootstrappers", "a");
    if first {
        env.start().await;
    }
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn no_runtime_is_signalled_before_direct_runtimes_are_known() {
    let mut env = Env::initialized(&["a"]).await;
    env.kill().await;
    env.kcp.put(bootstrapper("a"));
    let forbidden = env.kcp.forbid_reads("runtimebootstrappers");
    env.change("two.example");
    env.start().await;
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert!(!env.readiness.is_ready());
    forbidden.stop();
    env.quiet().await;
    assert!(env.signals().is_empty());
    // After its release, the Runtime is signaled like any other Runtime.
    env.kcp.delete("runtimebootstrappers", "a");
    env.quiet().await;
    env.change("three.example");
    env.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_without_the_lifecycle_kind_has_no_direct_runtimes() {
    let mut env = Env::new(&["a"]);
    env.kcp.serve(&kinds::BOOTSTRAPPERS, false);
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.take("a", "annotations");
    // The kind is installed later, and its resources count from then on.
    env.kcp.serve(&kinds::BOOTSTRAPPERS, true);
    env.kcp.put(bootstrapper("a"));
    env.quiet().await;
    env.forget();
    env.change("three.example");
    env.quiet().await;
    assert!(env.signals().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_leaves_before_its_turn_is_not_signalled() {
    let mut env = Env::new(&["a", "b", "c", "d"]);
    env.settings.per_second = NonZeroU32::MIN;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until("the first", |it| !it.signals().is_empty()).await;
    let first = env.signalled().remove(0);
    let rest: Vec<&str> = ["a", "b", "c", "d"]
        .into_iter()
        .filter(|it| *it != first)
        .collect();
    env.kcp.merge(
        "runtimes",
        rest[0],
        &json!({"metadata": {"labels": {MODE: "direct"}}}),
    );
    env.kcp.put(bootstrapper(rest[1]));
    env.kcp.delete("runtimes", rest[2]);
    env.quiet().await;
    assert_eq!(env.signalled(), std::slice::from_ref(&first));
    env.take(&first, "annotations");
    env.quiet().await;
    assert_eq!(env.counts(), (0, 0));
}
