use api::kcp::RUNTIME_ID;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn object<K: serde::de::DeserializeOwned>(name: &str, status: &Value) -> K {
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "kcp"}, "status": status}),
    )
    .unwrap()
}

fn kyma(name: &str) -> KymaView {
    object(name, &Value::Null)
}

/// Returns a Kyma whose name is not its runtime ID.
fn named(name: &str, id: &str) -> KymaView {
    let labels = json!({RUNTIME_ID: id});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
}

/// Returns a RuntimeBootstrapper with a known runtime ID.
fn bootstrapper(name: &str) -> BootstrapperView {
    object(
        name,
        &json!({"runtimeID": format!("id-{name}"), "conditions": []}),
    )
}

/// Formats events: `init`, `done`, `+name` for a Kyma, `*name` for a RuntimeBootstrapper, `-name` for a deletion.
fn shown(events: &[Event<KymaView>]) -> String {
    let own = |it: &KymaView| {
        let sign = if it.is_bootstrapper() { '*' } else { '+' };
        format!("{sign}{}", it.name_any())
    };
    let one = |event: &Event<KymaView>| match event {
        Event::Init => "init".to_owned(),
        Event::InitDone => "done".to_owned(),
        Event::InitApply(it) | Event::Apply(it) => own(it),
        Event::Delete(it) => format!("-{}", it.name_any()),
    };
    let mut texts: Vec<String> = events.iter().map(one).collect();
    if texts.first().is_none_or(|it| it != "init") {
        texts.sort_unstable();
    }
    texts.join(" ")
}

/// Observes a list of both watches, and returns the events of the last change.
fn after_lists(kymas: &[&str], bootstrappers: &[&str], change: Change) -> String {
    let mut merge = Merge::new("kcp");
    let mut observe = |change| merge.observe(change);
    let mut seen = Vec::new();
    for name in bootstrappers {
        seen.extend(observe(Change::OfBootstrapper(Event::InitApply(
            bootstrapper(name),
        ))));
    }
    seen.extend(observe(Change::OfBootstrapper(Event::InitDone)));
    assert!(seen.is_empty(), "before all Kymas are known: {seen:?}");
    observe(Change::OfKyma(Event::Init));
    for name in kymas {
        observe(Change::OfKyma(Event::InitApply(kyma(name))));
    }
    observe(Change::OfKyma(Event::InitDone));
    shown(&observe(change))
}

#[test]
fn first_list_has_kymas_and_runtime_bootstrappers_without_one() {
    let mut merge = Merge::new("kcp");
    let mut events = Vec::new();
    for name in ["a", "b", "k"] {
        let event = Event::InitApply(bootstrapper(name));
        events.extend(merge.observe(Change::OfBootstrapper(event)));
    }
    events.extend(merge.observe(Change::OfBootstrapper(Event::InitDone)));
    events.extend(merge.observe(Change::OfKyma(Event::Init)));
    for kyma in [kyma("b"), kyma("c"), named("d", "id-k")] {
        events.extend(merge.observe(Change::OfKyma(Event::InitApply(kyma))));
    }
    events.extend(merge.observe(Change::OfKyma(Event::InitDone)));
    assert_eq!(shown(&events), "init +b +c +d *a done");
    let Event::InitApply(last) = &events[4] else {
        panic!("{events:?}")
    };
    assert_eq!(last.kyma().runtime_id.as_deref(), Some("id-a"));
    assert_eq!(
        last.reference().kind.as_deref(),
        Some("RuntimeBootstrapper")
    );
}

/// Kymas of an aborted list are not used for the next list.
#[test]
fn a_list_that_is_begun_again_has_its_own_kymas() {
    let mut merge = Merge::new("kcp");
    let mut observe = |event| shown(&merge.observe(Change::OfKyma(event)));
    assert_eq!(observe(Event::Init), "init");
    assert_eq!(observe(Event::InitApply(kyma("a"))), "+a");
    assert_eq!(observe(Event::Init), "init");
    assert_eq!(observe(Event::InitApply(kyma("b"))), "+b");
    assert_eq!(observe(Event::InitDone), "done");
    assert_eq!(observe(Event::Init), "");
    assert_eq!(observe(Event::InitApply(kyma("c"))), "+c");
    assert_eq!(observe(Event::Init), "");
    assert_eq!(observe(Event::InitApply(kyma("b"))), "+b");
    assert_eq!(observe(Event::InitDone), "-c");
}

#[rstest]
#[case::a_new_kyma(&[], &[], Change::OfKyma(Event::Apply(kyma("a"))), "+a")]
#[case::a_kyma_in_the_place_of_a_bootstrapper(&[], &["a"], Change::OfKyma(Event::Apply(kyma("a"))), "+a")]
#[case::a_kyma_that_leaves_a_bootstrapper(&["a"], &["a"], Change::OfKyma(Event::Delete(kyma("a"))), "*a")]
#[case::a_kyma_that_leaves_nothing(&["a"], &[], Change::OfKyma(Event::Delete(kyma("a"))), "-a")]
#[case::a_kyma_that_was_not_known(&[], &[], Change::OfKyma(Event::Delete(kyma("a"))), "-a")]
#[case::a_bootstrapper(&[], &[], Change::OfBootstrapper(Event::Apply(bootstrapper("a"))), "*a")]
#[case::a_bootstrapper_that_changes(&[], &["a"], Change::OfBootstrapper(Event::Apply(bootstrapper("a"))), "*a")]
#[case::a_bootstrapper_beside_a_kyma(&["a"], &[], Change::OfBootstrapper(Event::Apply(bootstrapper("a"))), "")]
#[case::a_bootstrapper_that_goes(&[], &["a"], Change::OfBootstrapper(Event::Delete(bootstrapper("a"))), "-a")]
#[case::a_bootstrapper_that_goes_beside_a_kyma(&["a"], &["a"], Change::OfBootstrapper(Event::Delete(bootstrapper("a"))), "")]
#[case::a_bootstrapper_without_a_runtime(&[], &[], Change::OfBootstrapper(Event::Apply(object("a", &json!({})))), "")]
#[case::a_bootstrapper_that_lost_its_runtime(&[], &["a"], Change::OfBootstrapper(Event::Apply(object("a", &json!({})))), "-a")]
#[case::a_list_in_which_kymas_are_gone(&["a", "b"], &["b"], Change::OfKyma(Event::InitDone), "*b -a")]
#[case::a_list_in_which_bootstrappers_are_gone(&["a"], &["a", "b"], Change::OfBootstrapper(Event::InitDone), "-b")]
#[case::a_kyma_with_its_runtime_id(&[], &["a"], Change::OfKyma(Event::Apply(named("k", "id-a"))), "+k -a")]
#[case::a_kyma_with_another_runtime_id(&[], &["a"], Change::OfKyma(Event::Apply(named("k", "id-b"))), "+k")]
fn change_of_one_of_both(
    #[case] kymas: &[&str],
    #[case] bootstrappers: &[&str],
    #[case] change: Change,
    #[case] expected: &str,
) {
    assert_eq!(after_lists(kymas, bootstrappers, change), expected);
}

#[test]
fn a_runtime_bootstrapper_stands_for_its_runtime_while_no_kyma_has_its_runtime_id() {
    let mut merge = Merge::new("kcp");
    let apply = |name, id| Change::OfKyma(Event::Apply(named(name, id)));
    let delete = |name, id| Change::OfKyma(Event::Delete(named(name, id)));
    let list = Event::InitApply(named("k", "id-a"));
    merge.observe(Change::OfKyma(list));
    merge.observe(Change::OfKyma(Event::InitDone));
    for (change, expected) in [
        (Change::OfBootstrapper(Event::Apply(bootstrapper("a"))), ""),
        (apply("k", "id-a"), "+k"),
        (apply("l", "id-a"), "+l"),
        (delete("k", "id-a"), "-k"),
        (apply("l", "id-b"), "*a +l"),
        (apply("l", "id-a"), "+l -a"),
        (delete("l", "id-a"), "*a -l"),
        (
            Change::OfBootstrapper(Event::Delete(bootstrapper("a"))),
            "-a",
        ),
    ] {
        assert_eq!(shown(&merge.observe(change)), expected);
    }
}

/// Between two events, the runtime has no other owner and keeps its watcher.
#[test]
fn a_runtime_bootstrapper_is_returned_before_the_kyma_that_leaves_its_runtime() {
    let mut merge = Merge::new("kcp");
    merge.observe(Change::OfKyma(Event::InitDone));
    for change in [
        Change::OfBootstrapper(Event::Apply(bootstrapper("a"))),
        Change::OfKyma(Event::Apply(named("k", "id-a"))),
    ] {
        merge.observe(change);
    }
    let mut change = |id| {
        let events = merge.observe(Change::OfKyma(Event::Apply(named("k", id))));
        events
            .iter()
            .map(|it| shown(std::slice::from_ref(it)))
            .collect::<Vec<_>>()
    };
    assert_eq!(change("id-b"), ["*a", "+k"]);
    assert_eq!(change("id-a"), ["+k", "-a"]);
}
