use rstest::rstest;
use serde_json::json;

use super::*;

fn applied(live: &Owned, name: &str, content: impl std::borrow::Borrow<Value>) -> Owned {
    applied_with(live, name, content.borrow(), false).unwrap()
}

fn applied_with(
    live: &Owned,
    name: &str,
    content: &Value,
    force: bool,
) -> Result<Owned, Vec<Conflict>> {
    let applier = Applier {
        name,
        api_version: "v1",
        status: false,
        custom: false,
        force,
    };
    apply(live, content, applier)
}

fn owners(owned: &Owned) -> Vec<(&str, Vec<String>)> {
    let managers = owned.managers.iter();
    managers
        .map(|it| (it.name.as_str(), it.fields.places()))
        .collect()
}

fn made_by_a() -> Owned {
    let content = json!({"kind": "ConfigMap", "metadata": {"name": "x", "labels": {"l": "1"}},
        "data": {"one": "1", "two": "2"}});
    applied(&Owned::default(), "a", content)
}

#[test]
fn what_is_applied_again_changes_nothing() {
    let live = made_by_a();
    assert_eq!(applied(&live, "a", live.content.clone()), live);
    assert_eq!(
        owners(&live),
        [(
            "a",
            vec![
                ".data.one".into(),
                ".data.two".into(),
                ".metadata.labels.l".into()
            ]
        )]
    );
}

#[test]
fn a_field_that_its_only_manager_no_longer_applies_goes() {
    let next = applied(&made_by_a(), "a", json!({"data": {"two": "2"}}));
    assert_eq!(next.content["data"], json!({"two": "2"}));
    assert!(next.content["metadata"].get("labels").is_none(), "{next:?}");
    assert_eq!(next.content["kind"], "ConfigMap");
}

#[test]
fn a_shared_field_stays_when_one_of_its_managers_lets_go() {
    let shared = applied(&made_by_a(), "b", json!({"data": {"one": "1"}}));
    let next = applied(&shared, "a", json!({"data": {"two": "2"}}));
    assert_eq!(next.content["data"], json!({"one": "1", "two": "2"}));
    assert_eq!(
        owners(&next),
        [
            ("a", vec![".data.two".into()]),
            ("b", vec![".data.one".into()])
        ]
    );
}

#[test]
fn another_value_is_a_conflict_and_force_takes_the_field() {
    let live = made_by_a();
    let content = json!({"data": {"one": "other", "three": "3"}});
    let conflicts = applied_with(&live, "b", &content, false).unwrap_err();
    let [conflict] = conflicts.as_slice() else {
        panic!("{conflicts:?}");
    };
    assert_eq!(
        (conflict.manager.as_str(), conflict.field.as_str()),
        ("a", ".data.one")
    );

    let forced = applied_with(&live, "b", &content, true).unwrap();
    assert_eq!(
        forced.content["data"],
        json!({"one": "other", "two": "2", "three": "3"})
    );
    assert_eq!(
        owners(&forced),
        [
            ("a", vec![".data.two".into(), ".metadata.labels.l".into()]),
            ("b", vec![".data.one".into(), ".data.three".into()]),
        ]
    );
}

#[test]
fn elements_of_a_keyed_list_are_owned_one_by_one() {
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let pods = |containers: Vec<Value>| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let live = applied(
        &Owned::default(),
        "a",
        pods(vec![container("web", "1"), container("log", "1")]),
    );
    let both = applied(&live, "b", pods(vec![container("side", "2")]));
    let less = applied(&both, "a", pods(vec![container("web", "3")]));
    assert_eq!(
        less.content,
        pods(vec![container("web", "3"), container("side", "2")])
    );
}

#[test]
fn an_atomic_value_is_replaced_as_one() {
    let live = applied(
        &Owned::default(),
        "a",
        json!({"spec": {"selector": {"x": "1"}, "args": ["a"]}}),
    );
    let next = applied(
        &live,
        "a",
        json!({"spec": {"selector": {"y": "2"}, "args": ["b"]}}),
    );
    assert_eq!(
        next.content,
        json!({"spec": {"selector": {"y": "2"}, "args": ["b"]}})
    );
}

#[rstest]
#[case::changed(json!({"data": {"one": "other", "two": "2"}}), &[("a", ".data.two"), ("kubectl", ".data.one")])]
#[case::added(json!({"data": {"one": "1", "two": "2", "three": "3"}}), &[("a", ".data.one"), ("a", ".data.two"), ("kubectl", ".data.three")])]
#[case::removed(json!({"data": {"two": "2"}}), &[("a", ".data.two")])]
fn a_writer_that_does_not_apply_owns_what_it_changed(
    #[case] content: Value,
    #[case] expected: &[(&str, &str)],
) {
    let live = applied(
        &Owned::default(),
        "a",
        json!({"data": {"one": "1", "two": "2"}}),
    );
    let writer = Applier {
        name: "kubectl",
        api_version: "v1",
        status: false,
        custom: false,
        force: false,
    };
    let next = update(&live, content, writer);
    let found: Vec<(&str, String)> = owners(&next)
        .into_iter()
        .flat_map(|(name, places)| places.into_iter().map(move |place| (name, place)))
        .collect();
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(name, place)| (*name, place.as_str()))
        .collect();
    assert_eq!(found, expected);
}
