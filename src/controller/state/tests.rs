//! Tests of the state ConfigMap against an in-process API server.

use jiff::Timestamp;
use std::time::Duration;

use policy::sync::ObjectNames;
use policy::sync::SourceKind;
use policy::sync::history::{Grace, SourceHistory};
use policy::sync::sources::{SourceState, Sources};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{ControlPlane, Mode, NAMESPACE};

const NAME: &str = "rt-bootstrapper-signal-state";

fn record(kcp: &ControlPlane) -> StateStore {
    StateStore::new(kcp.client(), NAMESPACE, NAME)
}

/// Returns a ConfigMap that another client created with this name.
fn config_map(labels: &Value, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "labels": labels}, "data": data,
    })
}

fn data(value: &str) -> Data {
    Data::from([("key".to_owned(), value.to_owned())])
}

#[tokio::test(start_paused = true)]
async fn it_is_created_once_and_read_back_by_a_successor() {
    let kcp = ControlPlane::new(Mode::Direct);
    let mut first = record(&kcp);
    assert_eq!(first.load().await.unwrap(), None);
    first.save(data("one")).await.unwrap();
    first.save(data("two")).await.unwrap();
    let mut second = record(&kcp);
    assert_eq!(second.load().await.unwrap(), Some(data("two")));
    let stored = kcp.object("configmaps", NAME).unwrap();
    assert_eq!(
        stored["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"})
    );
    assert_eq!(
        second.reference().uid.as_deref(),
        stored["metadata"]["uid"].as_str()
    );
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_overwrites_nothing() {
    let kcp = ControlPlane::new(Mode::Direct);
    let mut deposed = record(&kcp);
    deposed.save(data("one")).await.unwrap();
    let mut successor = record(&kcp);
    successor.load().await.unwrap();
    successor.save(data("two")).await.unwrap();
    let refused = deposed.save(data("three")).await.unwrap_err();
    assert!(matches!(refused, StateError::Changed));
    assert_eq!(
        kcp.object("configmaps", NAME).unwrap()["data"],
        json!({"key": "two"})
    );
    // The third store has loaded no ConfigMap, so it tries to create the ConfigMap.
    let mut late = record(&kcp);
    assert!(matches!(
        late.save(data("four")).await.unwrap_err(),
        StateError::Changed
    ));
}

#[tokio::test(start_paused = true)]
async fn what_others_attached_stays() {
    let kcp = ControlPlane::new(Mode::Direct);
    let mut ours = record(&kcp);
    ours.save(data("one")).await.unwrap();
    kcp.merge(
        "configmaps",
        NAME,
        &json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}),
    );
    ours.load().await.unwrap();
    ours.save(data("two")).await.unwrap();
    let stored = kcp.object("configmaps", NAME).unwrap();
    assert_eq!(stored["metadata"]["labels"]["team"], "a");
    assert_eq!(stored["metadata"]["annotations"]["note"], "b");
    assert_eq!(stored["data"], json!({"key": "two"}));
}

#[rstest]
#[case::no_label(json!({}))]
#[case::another_manager(json!({"app.kubernetes.io/managed-by": "Helm"}))]
#[tokio::test(start_paused = true)]
async fn a_foreign_config_map_is_neither_believed_nor_written(#[case] labels: Value) {
    let kcp = ControlPlane::new(Mode::Direct);
    kcp.put(config_map(&labels, &json!({"key": "theirs"})));
    let mut ours = record(&kcp);
    assert!(matches!(
        ours.load().await.unwrap_err(),
        StateError::NotOwned { .. }
    ));
    assert!(matches!(
        ours.save(data("one")).await.unwrap_err(),
        StateError::Changed
    ));
    assert_eq!(
        kcp.object("configmaps", NAME).unwrap()["data"],
        json!({"key": "theirs"})
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_one_is_created_anew() {
    let kcp = ControlPlane::new(Mode::Direct);
    let mut ours = record(&kcp);
    ours.save(data("one")).await.unwrap();
    kcp.delete("configmaps", NAME);
    assert!(matches!(
        ours.save(data("two")).await.unwrap_err(),
        StateError::Deleted
    ));
    ours.save(data("two")).await.unwrap();
    assert_eq!(record(&kcp).load().await.unwrap(), Some(data("two")));
}

#[tokio::test(start_paused = true)]
async fn what_would_not_fit_is_not_sent() {
    let kcp = ControlPlane::new(Mode::Direct);
    let mut ours = record(&kcp);
    ours.save(data("one")).await.unwrap();
    let before = kcp.writes().len();
    let large = data(&"x".repeat(MAX_SIZE));
    assert!(matches!(
        ours.save(large).await.unwrap_err(),
        StateError::Oversized { .. }
    ));
    assert_eq!(kcp.writes().len(), before);
    ours.save(data(&"x".repeat(MAX_SIZE - 3))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_not_taken_for_none() {
    let kcp = ControlPlane::new(Mode::Direct);
    kcp.forbid_reads("configmaps");
    assert!(matches!(
        record(&kcp).load().await.unwrap_err(),
        StateError::Unavailable(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_found_by_reading_again() {
    let kcp = ControlPlane::new(Mode::Direct);
    let mut ours = record(&kcp);
    ours.save(data("one")).await.unwrap();
    kcp.fault("update configmaps").times(1).lose_answers();
    assert!(matches!(
        ours.save(data("two")).await.unwrap_err(),
        StateError::Unavailable(_)
    ));
    assert!(matches!(
        ours.save(data("three")).await.unwrap_err(),
        StateError::Changed
    ));
    assert_eq!(ours.load().await.unwrap(), Some(data("two")));
}

/// Returns the `lastSeen.*` data of a source that was rolled out.
fn rolled_out() -> Data {
    Data::from([
        ("initialized".to_owned(), "true".to_owned()),
        ("lastSeen.trustBundle".to_owned(), "0".repeat(64)),
        ("lastSeen.trustBundle.name".to_owned(), "roots".to_owned()),
        ("signal.pending".to_owned(), "a b".to_owned()),
    ])
}

async fn recalled(kcp: &ControlPlane) -> Result<LoadedState, LoadError> {
    let mut own = StateStore::new(kcp.client(), NAMESPACE, "rt-bootstrapper-direct-state");
    load(&mut own, &mut record(kcp)).await
}

#[tokio::test(start_paused = true)]
async fn without_any_record_nothing_was_rolled_out() {
    let recalled = recalled(&ControlPlane::new(Mode::Direct)).await.unwrap();
    assert_eq!(recalled.history, SourceHistory::default());
    assert!(!recalled.inherited);
}

/// A source that is deleted after one controller stopped is a deletion for the other controller.
#[tokio::test(start_paused = true)]
async fn what_the_mode_before_rolled_out_is_inherited_once() {
    let kcp = ControlPlane::new(Mode::Direct);
    record(&kcp).save(rolled_out()).await.unwrap();
    let mut recalled = recalled(&kcp).await.unwrap();
    assert!(recalled.inherited);
    let deleted = Sources {
        names: ObjectNames {
            trust_bundle: Some("roots".to_owned()),
            ..ObjectNames::on_kcp()
        },
        pull_secret: SourceState::Absent,
        trust_bundle: SourceState::Absent,
        configuration: SourceState::Absent,
    };
    assert_eq!(
        recalled.history.advance(
            &deleted,
            Grace {
                now: Timestamp::now(),
                period: Duration::ZERO,
            }
        ),
        [SourceKind::TrustBundle]
    );

    let mut own = StateStore::new(kcp.client(), NAMESPACE, "rt-bootstrapper-direct-state");
    own.save(Data::new()).await.unwrap();
    let later = super::load(&mut own, &mut record(&kcp)).await.unwrap();
    assert_eq!(later.history, SourceHistory::default());
    assert!(!later.inherited);
}

#[rstest]
#[case::foreign(json!({}), json!({}))]
#[case::damaged(
    json!({"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"}),
    json!({"lastSeen.pullSecret": "x"}),
)]
#[tokio::test(start_paused = true)]
async fn what_cannot_be_recalled_is_not_nothing(#[case] labels: Value, #[case] data: Value) {
    let kcp = ControlPlane::new(Mode::Direct);
    kcp.put(config_map(&labels, &data));
    assert!(recalled(&kcp).await.is_err());
}
