//! What is left on a runtime whose resource was deleted: nothing of ours, and all of others.

use rstest::rstest;
use serde_json::{Value, json};

use super::skr::{Skr, State};
use super::world::*;

const FOREIGN: &str = "kubernetes.io/dockerconfigjson";

/// A runtime that holds what customers made, and what it holds before the webhook is installed.
async fn with_customers(world: &World) -> (Skr, Vec<String>) {
    let skr = world.add("a").await;
    // Of the copies' name, of their type, or with their label.
    skr.make_secret("shop", "registry-credentials", FOREIGN, false);
    skr.make_secret("shop", "another", "Opaque", true);
    let before = skr.inventory();
    (skr, before)
}

/// The same, installed, with a webhook that ran.
async fn installed(copies: usize) -> (World, Skr, Vec<String>) {
    let mut world = World::new();
    let (skr, before) = with_customers(&world).await;
    world.start();
    world.until_ready("a").await;
    world.settle().await;
    skr.webhook_runs(copies);
    skr.take();
    (world, skr, before)
}

fn is_gone(world: &World) -> bool {
    world.kcp.get("runtimebootstrappers", "a").is_none()
}

fn message(world: &World) -> Value {
    let conditions = world.status("a")["conditions"].clone();
    let all = conditions.as_array().unwrap();
    let found = all.iter().find(|it| it["type"] == "Installed");
    found.unwrap()["message"].clone()
}

/// More copies than one page of a list holds.
#[tokio::test]
async fn uninstallation_leaves_the_runtime_as_it_was_before_the_installation() {
    let (world, skr, before) = installed(150).await;
    world.kcp.delete("runtimebootstrappers", "a");
    world.until("the resource is gone", is_gone).await;
    assert_eq!(skr.inventory(), before);
    let writes = skr.take();
    let at = |start: &str| {
        writes
            .iter()
            .position(|it| it.starts_with(start))
            .unwrap_or_else(|| panic!("{start}: {writes:?}"))
    };
    let order = [
        "delete MutatingWebhookConfiguration/",
        "delete Deployment/",
        "delete ServiceAccount/",
        "delete Secret/registry-credentials",
        "delete Secret/rt-bootstrapper-webhook-cert",
        "delete Lease/",
        "delete ConfigMap/rt-bootstrapper-config",
        "delete ConfigMap/rt-bootstrapper-owner",
    ]
    .map(at);
    assert!(order.is_sorted(), "{writes:?}");
}

/// A webhook that runs writes a copy anew that is deleted under it.
#[tokio::test]
async fn copies_are_deleted_once_the_webhooks_pods_are_gone() {
    let (world, skr, before) = installed(3).await;
    skr.lock().pods_stay = true;
    world.kcp.delete("runtimebootstrappers", "a");
    world
        .until("the webhook is being deleted", |_| {
            skr.lock()
                .writes
                .iter()
                .any(|it| it == "delete Deployment/rt-bootstrapper-controller-manager")
        })
        .await;
    let passes = world.passes();
    world
        .until("some more passes", |it| it.passes() > passes + 3)
        .await;
    assert_eq!(
        skr.take(),
        [
            "delete MutatingWebhookConfiguration/rt-bootstrapper",
            "delete Deployment/rt-bootstrapper-controller-manager"
        ]
    );
    assert_eq!(world.condition("a", "Installed"), "False Uninstalling");
    skr.pods_end();
    world.until("the resource is gone", is_gone).await;
    assert_eq!(skr.inventory(), before);
}

/// Nothing is begun of what cannot be completed, and a deletion that cannot be carried out is not claimed as done.
#[rstest]
#[case::may_not_list(|it: &mut State| it.unreadable = Some("/api/v1/secrets"), "list secrets in all namespaces")]
#[case::may_not_delete(|it: &mut State| it.allows = false, "delete secrets in all namespaces")]
#[tokio::test]
async fn uninstallation_without_rights_to_the_copies_says_so_and_begins_nothing(
    #[case] take_away: fn(&mut State),
    #[case] right: &str,
) {
    let (world, skr, before) = installed(3).await;
    take_away(&mut skr.lock());
    world.kcp.delete("runtimebootstrappers", "a");
    world
        .until_condition("a", "Installed", "False InsufficientPermissions")
        .await;
    assert_eq!(
        message(&world),
        json!(format!("missing permissions: {right}"))
    );
    world.settle().await;
    assert_eq!(skr.take(), [""; 0]);
    assert!(!is_gone(&world));
    skr.lock().unreadable = None;
    skr.lock().allows = true;
    world.until("the resource is gone", is_gone).await;
    assert_eq!(skr.inventory(), before);
}
