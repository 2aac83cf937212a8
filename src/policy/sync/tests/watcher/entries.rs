//! The webhook configuration that another client changed or deleted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use testkit::pki::Authority;

use super::*;

fn entry_of(manager: &str) -> Value {
    let mut entry = entry(manager, "ca");
    entry["clientConfig"]["service"] = json!({ "path": format!("/validate/{manager}") });
    entry
}

/// Returns the recorded hashes of entries.
fn entries(runtime: &Runtime) -> Value {
    runtime.observed.marker.as_ref().unwrap()["data"]["watcherEntries"].clone()
}

fn trust(webhooks: &mut Value, authorities: &str) {
    webhooks["webhooks"][0]["clientConfig"]["caBundle"] = json!(authorities);
}

/// Objects may have changed without a review, so the managers have to list them again.
#[rstest]
#[case::configuration(|it: &mut Runtime| it.put(target(WEBHOOKS), None), true)]
#[case::entry(|it: &mut Runtime| it.edit(WEBHOOKS, |it| it["webhooks"] = json!([])), true)]
#[case::objects(
    |it: &mut Runtime| it.edit(WEBHOOKS, |it| {
        it["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"a": "b"}});
    }),
    true
)]
#[case::trust(|it: &mut Runtime| it.edit(WEBHOOKS, |it| trust(it, "other")), true)]
#[case::trust_during_a_rotation(
    |it: &mut Runtime| it.edit(WEBHOOKS, |it| {
        trust(it, &["ca", "other"].join("-----END CERTIFICATE-----\n"));
    }),
    false
)]
fn an_entry_that_is_written_again_has_another_hash(
    #[case] drift: fn(&mut Runtime),
    #[case] is_new: bool,
) {
    let desired = desired(vec![entry_of("klm")]);
    let mut runtime = Runtime::installed(&desired);
    let before = entries(&runtime);
    let hash = before.as_str().unwrap().strip_prefix("klm ").unwrap();
    assert_eq!(hash.trim_end().len(), 64);
    drift(&mut runtime);
    let (written, _) = runtime.reconcile(&desired);
    let marker = format!("apply {MARKER}");
    let marker = is_new.then_some(marker);
    let expected: Vec<String> = marker
        .into_iter()
        .chain([format!("apply {WEBHOOKS}")])
        .collect();
    assert_eq!(written, expected);
    assert_eq!(entries(&runtime) != before, is_new);
    assert_eq!(
        runtime.reconcile(&desired),
        (vec![], WatcherState::Installed)
    );
}

/// For example `kubectl apply` of an object that was exported and deleted. What changed in between had no review.
#[test]
fn a_configuration_that_another_client_creates_again_is_taken_over_and_has_another_hash() {
    let desired = desired(vec![entry_of("klm")]);
    let mut runtime = Runtime::installed(&desired);
    let before = entries(&runtime);
    runtime.edit(WEBHOOKS, |it| {
        it["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Update"}]);
    });
    let (written, _) = runtime.reconcile(&desired);
    assert_eq!(
        written,
        [format!("apply {MARKER}"), format!("apply {WEBHOOKS}")]
    );
    assert_ne!(entries(&runtime), before);
    let unchanged = (vec![], WatcherState::Installed);
    assert_eq!(runtime.reconcile(&desired), unchanged);
}

/// A clean-up of a customer deletes the configuration and the ownership ConfigMap, more than once.
#[test]
fn each_deletion_of_configuration_and_marker_has_another_hash() {
    let desired = desired(vec![entry_of("klm")]);
    let mut runtime = Runtime::installed(&desired);
    let mut seen = vec![entries(&runtime)];
    for _ in 0..2 {
        runtime.put(target(WEBHOOKS), None);
        runtime.observed.marker = None;
        runtime.converge(&desired);
        let now = entries(&runtime);
        assert!(!seen.contains(&now), "{now}");
        seen.push(now);
    }
}

/// The Service waits until all Pods are of this version, which may never be.
#[test]
fn a_service_that_waits_for_the_rollout_changes_no_hash() {
    let desired = desired(vec![entry_of("klm")]);
    let mut runtime = Runtime::installed(&desired);
    let before = entries(&runtime);
    runtime.edit(SERVICE, |it| {
        it["spec"]["selector"] = json!({"another": "one"});
    });
    runtime.edit(DEPLOYMENT, |it| {
        for key in ["readyReplicas", "availableReplicas", "updatedReplicas"] {
            it["status"][key] = json!(1);
        }
    });
    for _ in 0..2 {
        let (written, state) = runtime.reconcile(&desired);
        assert_eq!((written, state), (vec![], WatcherState::Progressing));
    }
    assert_eq!(entries(&runtime), before);
}

/// A backup sets the CAs back to those from before a rotation, while the watcher serves with a certificate of the new CA.
#[rstest]
#[case::earlier(false, true)]
#[case::current(true, false)]
fn a_bundle_without_the_ca_of_the_certificate_is_not_in_force(
    #[case] has_current: bool,
    #[case] is_new: bool,
) {
    let [earlier, current] = ["one", "two"].map(|it| Authority::new(it).unwrap());
    let leaf = current.leaf("skr-webhook").unwrap();
    let both = STANDARD.encode([current.pem(), earlier.pem()].concat());
    let mut wanted = entry_of("klm");
    wanted["clientConfig"]["caBundle"] = json!(both);
    let desired = desired(vec![wanted]);
    let mut runtime = Runtime::new();
    let certificate = STANDARD.encode(leaf.pem);
    runtime.certificate = Some(certificate_secret(
        NAMESPACE,
        ["ca", &certificate, "key"],
        "",
    ));
    runtime.converge(&desired);
    let before = entries(&runtime);
    let left = if has_current { &current } else { &earlier };
    runtime.edit(WEBHOOKS, |it| trust(it, &STANDARD.encode(left.pem())));
    runtime.converge(&desired);
    assert_eq!(entries(&runtime) != before, is_new);
}

/// An apply keeps the condition, without which the webhook is called again.
#[test]
fn a_match_condition_of_another_client_is_removed() {
    let desired = desired(vec![entry_of("klm"), entry_of("other")]);
    let mut runtime = Runtime::installed(&desired);
    let before = entries(&runtime);
    runtime.edit(WEBHOOKS, |it| {
        it["webhooks"][1]["matchConditions"] = json!([{"name": "c", "expression": "false"}]);
    });
    let (written, _) = runtime.reconcile(&desired);
    let remove = format!("remove-fields {WEBHOOKS}");
    assert_eq!(written[..2], [format!("apply {MARKER}"), remove]);
    let live = runtime.live(&target(WEBHOOKS)).unwrap();
    assert_eq!(live["webhooks"][1]["matchConditions"], json!([]));
    let [before, after] = [before, entries(&runtime)].map(|it| it.as_str().unwrap().to_owned());
    let [before, after] = [&before, &after].map(|it| it.lines().collect::<Vec<_>>());
    assert_eq!(before[0], after[0]);
    assert_ne!(before[1], after[1]);
    assert_eq!(
        runtime.reconcile(&desired),
        (vec![], WatcherState::Installed)
    );
}

/// A leader that sees the end need not be the one that saw the start.
#[test]
fn all_entries_have_another_hash_when_reviews_arrive_again() {
    let desired = desired(vec![entry_of("klm"), entry_of("other")]);
    let mut runtime = Runtime::installed(&desired);
    let before = entries(&runtime);
    let at = |second| Timestamp::from_second(second).unwrap();
    let unchanged = (vec![], WatcherState::Installed);
    let recorded = (vec![format!("apply {MARKER}")], WatcherState::Installed);
    let observations = [
        (Reviews::Last(at(10)), &unchanged),
        (Reviews::Missing(at(20)), &recorded),
        (Reviews::Missing(at(30)), &unchanged),
        (Reviews::Unknown, &unchanged),
        (Reviews::Last(at(10)), &unchanged),
    ];
    for (reviews, expected) in observations {
        runtime.reviews = reviews;
        assert_eq!(runtime.reconcile(&desired), *expected, "{reviews:?}");
        assert_eq!(entries(&runtime), before);
    }
    runtime.reviews = Reviews::Last(at(40));
    assert_eq!(runtime.reconcile(&desired), recorded);
    let after = entries(&runtime);
    let [before, after] = [&before, &after].map(|it| it.as_str().unwrap().lines());
    assert!(before.zip(after).all(|(before, after)| before != after));
    assert_eq!(runtime.reconcile(&desired), unchanged);
    // The next outage.
    runtime.reviews = Reviews::Missing(at(50));
    assert_eq!(runtime.reconcile(&desired), recorded);
}

/// The webhook configuration stays as it is, and reviews fail until the Service is written again.
#[rstest]
#[case::deleted(|it: &mut Runtime| it.put(target(SERVICE), None), true)]
#[case::selector(|it: &mut Runtime| it.edit(SERVICE, |it| it["spec"]["selector"] = json!({"a": "b"})), true)]
#[case::label(|it: &mut Runtime| it.edit(SERVICE, |it| it["metadata"]["annotations"] = json!({})), false)]
fn entries_have_another_hash_when_reviews_did_not_reach_the_watcher(
    #[case] drift: fn(&mut Runtime),
    #[case] is_new: bool,
) {
    let desired = desired(vec![entry_of("klm")]);
    let mut runtime = Runtime::installed(&desired);
    let before = entries(&runtime);
    drift(&mut runtime);
    let (written, _) = runtime.reconcile(&desired);
    assert!(written.contains(&format!("apply {SERVICE}")), "{written:?}");
    assert_eq!(entries(&runtime) != before, is_new);
    assert_eq!(
        runtime.reconcile(&desired),
        (vec![], WatcherState::Installed)
    );
}

/// One replica answers reviews; the other one may be pending for a long time.
#[test]
fn a_deleted_configuration_is_created_again_while_a_replica_is_missing() {
    let mut runtime = Runtime::installed(&one());
    runtime.put(target(WEBHOOKS), None);
    runtime.edit(DEPLOYMENT, |it| {
        it["status"]["readyReplicas"] = json!(1);
        it["status"]["availableReplicas"] = json!(1);
        it["status"]["conditions"] = json!([{ "type": "Available", "status": "False" }]);
    });
    let (written, state) = runtime.reconcile(&one());
    assert_eq!(written, [format!("apply {WEBHOOKS}")]);
    assert_eq!(state, WatcherState::Progressing);
}
