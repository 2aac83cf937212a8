use std::sync::Arc;

use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::copies::Copies;
use super::super::found::Found;
use super::super::pods::{PodSight, Pods};
use super::super::state::{Dirty, State, Verdict};
use super::*;
use crate::knowledge::Knowledge;
use crate::knowledge::version::{Requirements, Seen};

fn sight(secret: Value) -> (String, Found) {
    Found::read(serde_json::from_value(secret).unwrap())
}

fn listed(copies: &mut Copies, secrets: Vec<Value>) -> Dirty {
    copies.see(Event::Init);
    for secret in secrets {
        assert_eq!(copies.see(Event::InitApply(sight(secret))), Dirty::Nothing);
    }
    copies.see(Event::InitDone)
}

fn pod(name: &str, asks: bool) -> PodSight {
    PodSight {
        namespace: "a".to_owned(),
        name: name.to_owned(),
        asks,
    }
}

fn knowledge(namespace: KnownNamespace) -> Knowledge {
    let knowledge = Knowledge::default();
    knowledge.set_configuration(with_feature());
    knowledge.set_pull_secret(source(ONE));
    knowledge.set_namespace("a", Some(namespace));
    knowledge
}

fn verdict(state: &State) -> &'static str {
    match state.decide("a") {
        Verdict::Settled => "settled",
        Verdict::Act(job) => job.work.name(),
        Verdict::Linger(job) => {
            assert_eq!(job.work.name(), "remove");
            "linger"
        }
    }
}

#[rstest]
#[case::needed(true, Some(false), vec![], "apply")]
#[case::there(true, Some(false), vec![copy("a", ONE)], "settled")]
#[case::edited(true, Some(false), vec![copy("a", TWO)], "apply")]
#[case::another_type(true, Some(false), vec![with(copy("a", ONE), "/type", json!("Opaque"))], "recreate")]
#[case::foreign(true, Some(false), vec![foreign("a")], "report")]
#[case::by_a_pod(false, Some(true), vec![], "apply")]
#[case::nobody_asks(false, Some(false), vec![], "settled")]
#[case::no_longer_needed(false, Some(false), vec![copy("a", ONE)], "linger")]
#[case::a_strangers_is_not_removed(false, Some(false), vec![foreign("a")], "settled")]
#[case::pods_not_known_nothing_removed(false, None, vec![copy("a", ONE)], "settled")]
#[case::pods_not_known_nothing_added(false, None, vec![], "settled")]
#[case::pods_not_known_and_not_asked(true, None, vec![], "apply")]
fn decides(
    #[case] namespace_asks: bool,
    #[case] pod_asks: Option<bool>,
    #[case] secrets: Vec<Value>,
    #[case] expected: &str,
) {
    let mut state = State::new("kyma-system".to_owned());
    state.refresh(&knowledge(namespace(namespace_asks)));
    assert_eq!(verdict(&state), "settled", "nothing is known of the copies");
    listed(&mut state.copies, secrets);
    if let Some(asks) = pod_asks {
        state.pods.see(Event::Init);
        state.pods.see(Event::InitApply(pod("p", asks)));
        state.pods.see(Event::InitDone);
    }
    assert_eq!(verdict(&state), expected);
}

#[rstest]
#[case::of_the_product("a", false, copy("a", TWO))]
#[case::terminating("kyma-system", true, copy("a", TWO))]
#[case::copy_held_by_a_finalizer("kyma-system", false, {
    let mut secret = copy("a", TWO);
    secret["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    secret
})]
fn leaves_a_namespace_alone(
    #[case] product: &str,
    #[case] terminating: bool,
    #[case] secret: Value,
) {
    let mut known = namespace(true);
    known.terminating = terminating;
    let mut state = State::new(product.to_owned());
    state.refresh(&knowledge(known));
    listed(&mut state.copies, vec![secret]);
    assert_eq!(verdict(&state), "settled");
}

#[test]
fn a_copy_lingers_when_the_feature_is_withdrawn() {
    let knowledge = knowledge(namespace(true));
    knowledge.set_configuration(configuration("", ""));
    let mut state = State::new("kyma-system".to_owned());
    state.refresh(&knowledge);
    listed(&mut state.copies, vec![copy("a", ONE)]);
    assert_eq!(verdict(&state), "linger");
}

#[test]
fn a_namespace_that_the_snapshot_lacks_is_not_touched() {
    let mut state = State::new("kyma-system".to_owned());
    let knowledge = knowledge(namespace(true));
    knowledge.set_namespace("a", None);
    state.refresh(&knowledge);
    listed(&mut state.copies, vec![copy("a", TWO)]);
    assert_eq!(verdict(&state), "settled");
}

#[test]
fn refreshing_names_what_changed() {
    let knowledge = knowledge(namespace(true));
    let mut state = State::new("kyma-system".to_owned());
    let mut refreshed = || {
        let mut names = state.refresh(&knowledge);
        names.sort();
        names
    };
    assert_eq!(refreshed(), ["a"]);
    assert!(refreshed().is_empty());
    knowledge.set_namespace("b", Some(namespace(false)));
    assert_eq!(refreshed(), ["b"]);
    knowledge.set_namespace("b", Some(namespace(true)));
    assert_eq!(refreshed(), ["b"]);
    knowledge.set_pull_secret(source(TWO));
    assert_eq!(refreshed(), ["a", "b"]);
    knowledge.set_configuration(with_feature());
    assert_eq!(refreshed(), ["a", "b"]);
    knowledge.set_namespace("a", None);
    assert_eq!(refreshed(), ["a"]);
}

#[test]
fn a_list_replaces_everything_when_it_is_complete_and_not_before() {
    let mut copies = Copies::default();
    assert_eq!(
        listed(&mut copies, vec![copy("a", ONE), copy("b", ONE)]),
        Dirty::All
    );
    copies.see(Event::Init);
    copies.see(Event::InitApply(sight(copy("c", ONE))));
    assert!(copies.of("a").is_some() && copies.of("c").is_none());
    // A list that fails half-way begins anew.
    copies.see(Event::Init);
    copies.see(Event::InitApply(sight(copy("b", ONE))));
    copies.see(Event::InitDone);
    let there = ["a", "b", "c"].map(|it| copies.of(it).is_some());
    assert_eq!(there, [false, true, false]);
}

#[test]
fn what_is_older_than_our_own_write_changes_nothing() {
    let version = "/metadata/resourceVersion";
    let at = |encoded: &str, it: &str| sight(with(copy("a", encoded), version, json!(it)));
    let mut copies = Copies::default();
    listed(&mut copies, vec![]);
    let written = at(ONE, "12").1;
    copies.wrote("a", written.clone());
    assert_eq!(copies.see(Event::Apply(at(TWO, "9"))), Dirty::Nothing);
    assert_eq!(copies.see(Event::Delete(at(TWO, "10"))), Dirty::Nothing);
    assert_eq!(copies.see(Event::Apply(at(ONE, "12"))), Dirty::Nothing);
    copies.see(Event::Init);
    copies.see(Event::InitApply(at(TWO, "11")));
    copies.see(Event::InitDone);
    assert_eq!(copies.of("a"), Some(&written));
    let gone = copies.see(Event::Delete(at(ONE, "13")));
    assert_eq!(gone, Dirty::Namespace("a".to_owned()));
}

#[rstest]
#[case::by_the_feature(json!({FEATURE: "true"}), true)]
#[case::by_the_alias(json!({"rt-cfg.kyma-project.io/all": "true"}), true)]
#[case::carved_out(json!({"rt-cfg.kyma-project.io/all": "true", FEATURE: "false"}), false)]
#[case::another_feature(json!({"rt-cfg.kyma-project.io/set-fips-mode": "true"}), false)]
#[case::a_mirror_pod_is_never_changed(json!({FEATURE: "true", "kubernetes.io/config.mirror": "x"}), false)]
#[case::nothing(json!(null), false)]
fn a_pod_asks(#[case] annotations: Value, #[case] asks: bool) {
    let metadata = json!({"name": "p", "namespace": "a", "annotations": annotations});
    let sight = PodSight::read(serde_json::from_value(metadata).unwrap());
    assert_eq!(sight, pod("p", asks));
}

#[test]
fn only_the_first_and_the_last_pod_make_a_namespace_dirty() {
    let dirty = Dirty::Namespace("a".to_owned());
    let mut pods = Pods::default();
    assert_eq!(pods.ask("a"), None);
    pods.see(Event::Init);
    assert_eq!(pods.see(Event::InitDone), Dirty::All);
    assert_eq!(pods.ask("a"), Some(false));
    assert_eq!(pods.see(Event::Apply(pod("silent", false))), Dirty::Nothing);
    assert_eq!(pods.see(Event::Apply(pod("one", true))), dirty);
    assert_eq!(pods.see(Event::Apply(pod("two", true))), Dirty::Nothing);
    assert_eq!(pods.see(Event::Delete(pod("one", true))), Dirty::Nothing);
    assert_eq!(pods.ask("a"), Some(true));
    // The annotation was taken away.
    assert_eq!(pods.see(Event::Apply(pod("two", false))), dirty);
    assert_eq!(pods.ask("a"), Some(false));
}

#[test]
fn the_same_configuration_object_is_no_news() {
    let knowledge = Knowledge::default();
    let configuration = with_feature();
    knowledge.set_configuration(Arc::clone(&configuration));
    knowledge.set_namespace("a", Some(namespace(true)));
    let mut state = State::default();
    state.refresh(&knowledge);
    knowledge.set_configuration(configuration);
    assert!(state.refresh(&knowledge).is_empty());
}

#[test]
fn a_secret_of_a_version_that_is_not_in_force_is_not_copied() {
    let annotated = |key: &str, value: &str| {
        serde_json::from_value(json!({"annotations": {key: value}})).unwrap()
    };
    let of = |encoded, version| PullSecretSource {
        seen: Seen::of(&annotated(api::runtimes::CONTENT_HASH, version)),
        ..source(encoded)
    };
    let requires =
        |version| Requirements::read(&annotated(api::runtimes::REQUIRES_PULL_SECRET, version));
    let knowledge = knowledge(namespace(true));
    knowledge.set_pull_secret(of(ONE, "1"));
    knowledge.offer(with_feature(), requires("1"));
    let mut state = State::new("kyma-system".to_owned());
    state.refresh(&knowledge);
    listed(&mut state.copies, vec![copy("a", ONE)]);
    assert_eq!(verdict(&state), "settled");

    knowledge.set_pull_secret(of(TWO, "2"));
    assert!(state.refresh(&knowledge).is_empty());
    assert_eq!(verdict(&state), "settled");
    knowledge.offer(with_feature(), requires("2"));
    assert_eq!(state.refresh(&knowledge), ["a"]);
    assert_eq!(verdict(&state), "apply");
}
