use policy::copies::Observed;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::secret::{Digest, SecretState, SecretView};
use super::{ONE, TWO, copy, foreign, with};

fn state(secret: Value) -> SecretState {
    SecretState::read(serde_json::from_value::<SecretView>(secret).unwrap()).1
}

fn source() -> Digest {
    Digest::of(br#"{"auths":{"one":{}}}"#)
}

fn extra_key() -> Value {
    let data = json!({".dockerconfigjson": ONE, "more": TWO});
    with(copy("a", ONE), "/data", data)
}

fn unlabelled() -> Value {
    with(copy("a", ONE), "/metadata/labels", json!({}))
}

fn unmanaged(encoded: &str) -> Value {
    with(copy("a", encoded), "/metadata/managedFields", json!([]))
}

fn immutable(encoded: &str) -> Value {
    let mut secret = copy("a", encoded);
    secret["immutable"] = json!(true);
    secret
}

#[rstest]
#[case::ours_and_equal(copy("a", ONE), Observed::Current)]
#[case::other_bytes(copy("a", TWO), Observed::Stale)]
#[case::no_base64(copy("a", "!"), Observed::Stale)]
#[case::ours_by_label_alone(unmanaged(ONE), Observed::Current)]
#[case::ours_by_label_alone_other_bytes(unmanaged(TWO), Observed::Stale)]
#[case::public_managers_copy_is_adopted(unlabelled(), Observed::Stale)]
#[case::label_of_another_value(
    with(unmanaged(ONE), "/metadata/labels", json!({"rt-bootstrapper.kyma-project.io/pull-secret-copy": "True"})),
    Observed::Foreign
)]
#[case::of_another_client(foreign("a"), Observed::Foreign)]
#[case::of_another_client_with_equal_bytes(
    with(foreign("a"), "/data", json!({".dockerconfigjson": ONE})),
    Observed::Foreign
)]
#[case::of_another_client_of_another_type(with(foreign("a"), "/type", json!("Opaque")), Observed::Foreign)]
#[case::another_type(with(copy("a", ONE), "/type", json!("Opaque")), Observed::Misshapen)]
#[case::a_key_more_belongs_to_another_manager(extra_key(), Observed::Misshapen)]
#[case::no_data(with(copy("a", ONE), "/data", json!(null)), Observed::Misshapen)]
#[case::immutable_and_right(immutable(ONE), Observed::Current)]
#[case::immutable_and_wrong(immutable(TWO), Observed::Misshapen)]
fn is_judged_beside_the_source(#[case] secret: Value, #[case] expected: Observed) {
    assert_eq!(state(secret).observed(Some(source())), expected);
}

#[test]
fn without_a_source_nothing_is_current() {
    assert_eq!(state(copy("a", ONE)).observed(None), Observed::Stale);
}

#[test]
fn shows_no_value() {
    let mut secret = copy("a", ONE);
    secret["metadata"]["annotations"] = json!({"last-applied": ONE});
    let view: SecretView = serde_json::from_value(secret).unwrap();
    let text = format!("{view:?} {:?}", state(copy("a", ONE)));
    assert!(!text.contains(ONE), "{text}");

    let broken = json!({"data": {".dockerconfigjson": ONE}, "immutable": 7});
    let error = serde_json::from_value::<SecretView>(broken).unwrap_err();
    assert!(!error.to_string().contains(ONE), "{error}");
}

#[rstest]
#[case::older("9", "10", true)]
#[case::same("10", "10", false)]
#[case::newer("11", "10", false)]
#[case::no_number_is_believed("x", "10", false)]
fn versions_order_states(#[case] this: &str, #[case] that: &str, #[case] older: bool) {
    let at = |version: &str| {
        let pointer = "/metadata/resourceVersion";
        state(with(copy("a", ONE), pointer, json!(version)))
    };
    assert_eq!(at(this).is_older_than(&at(that)), older);
}
