use rstest::rstest;
use serde_json::json;

use super::*;

fn applier(name: &str, force: bool) -> Applier<'_> {
    Applier {
        name,
        api_version: "v1",
        status: false,
        custom: false,
        force,
    }
}

fn applied(live: &Owned, name: &str, content: impl std::borrow::Borrow<Value>) -> Owned {
    apply(live, content.borrow(), applier(name, false)).unwrap()
}

/// What every manager owns: `a .data.one, b .data.two`.
fn owners(owned: &Owned) -> String {
    let managers = owned.managers.iter();
    let places = managers.flat_map(|it| it.fields.iter().map(move |place| (&it.name, place)));
    let places = places.map(|(name, place)| format!("{name} {}", fields::written(place)));
    places.collect::<Vec<_>>().join(", ")
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
    let expected = "a .data.one, a .data.two, a .metadata.labels.l";
    assert_eq!(owners(&live), expected);
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
    assert_eq!(owners(&next), "a .data.two, b .data.one");
}

#[test]
fn another_value_is_a_conflict_and_force_takes_the_field() {
    let live = made_by_a();
    let content = json!({"data": {"one": "other", "three": "3"}});
    let conflicts = apply(&live, &content, applier("b", false)).unwrap_err();
    let conflicts: Vec<_> = conflicts
        .iter()
        .map(|it| (&*it.manager, &*it.field))
        .collect();
    assert_eq!(conflicts, [("a", ".data.one")]);

    let forced = apply(&live, &content, applier("b", true)).unwrap();
    let expected = json!({"one": "other", "two": "2", "three": "3"});
    assert_eq!(forced.content["data"], expected);
    let expected = "a .data.two, a .metadata.labels.l, b .data.one, b .data.three";
    assert_eq!(owners(&forced), expected);
}

#[test]
fn elements_of_a_keyed_list_are_owned_one_by_one() {
    let pods = |containers: &[(&str, &str)]| {
        let containers = containers
            .iter()
            .map(|(name, image)| json!({"name": name, "image": image}));
        let containers: Value = containers.collect();
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    };
    let live = applied(&Owned::default(), "a", pods(&[("web", "1"), ("log", "1")]));
    let both = applied(&live, "b", pods(&[("side", "2")]));
    let less = applied(&both, "a", pods(&[("web", "3")]));
    assert_eq!(less.content, pods(&[("web", "3"), ("side", "2")]));
}

#[test]
fn an_atomic_value_is_replaced_as_one() {
    let first = json!({"spec": {"selector": {"x": "1"}, "args": ["a"]}});
    let second = json!({"spec": {"selector": {"y": "2"}, "args": ["b"]}});
    let live = applied(&Owned::default(), "a", first);
    assert_eq!(applied(&live, "a", &second).content, second);
}

#[rstest]
#[case::changed(json!({"data": {"one": "other", "two": "2"}}), "a .data.two, kubectl .data.one")]
#[case::added(json!({"data": {"one": "1", "two": "2", "three": "3"}}), "a .data.one, a .data.two, kubectl .data.three")]
#[case::removed(json!({"data": {"two": "2"}}), "a .data.two")]
fn a_writer_that_does_not_apply_owns_what_it_changed(
    #[case] content: Value,
    #[case] expected: &str,
) {
    let first = json!({"data": {"one": "1", "two": "2"}});
    let live = applied(&Owned::default(), "a", first);
    let next = update(&live, content, applier("kubectl", false));
    assert_eq!(owners(&next), expected);
}
