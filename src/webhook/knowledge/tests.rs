use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use rstest::rstest;

use super::*;

fn secret(type_: &str, key: &str, value: &str) -> Secret {
    Secret {
        type_: Some(type_.to_owned()),
        data: Some(BTreeMap::from([(key.to_owned(), ByteString(value.into()))])),
        ..Secret::default()
    }
}

#[test]
fn a_usable_pull_secret_is_read() {
    let secret = secret(
        "kubernetes.io/dockerconfigjson",
        ".dockerconfigjson",
        r#"{"auths":{"a.io":{"auth":"dTpw"}}}"#,
    );
    let source = PullSecretSource::read(&secret).ok().unwrap();
    assert!(matches!(source.known, PullSecret::Known(_)));
    assert!(source.content.is_some());
}

#[rstest]
#[case::opaque(secret("Opaque", ".dockerconfigjson", "{}"))]
#[case::another_key(secret("kubernetes.io/dockerconfigjson", "config", "{}"))]
#[case::no_json(secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "s3cret"))]
#[case::no_data(Secret { type_: Some("kubernetes.io/dockerconfigjson".into()), ..Secret::default() })]
fn an_unusable_pull_secret_is_refused_without_a_word_of_it(#[case] secret: Secret) {
    let error = PullSecretSource::read(&secret).err().unwrap();
    assert!(!format!("{error:?} {error}").contains("s3cret"));
}

#[test]
fn a_namespace_that_did_not_change_is_no_news() {
    let knowledge = Knowledge::default();
    let revisions = knowledge.revisions();
    knowledge.set_namespace("a", Some(KnownNamespace::default()));
    let first = *revisions.borrow();
    knowledge.set_namespace("a", Some(KnownNamespace::default()));
    assert_eq!(*revisions.borrow(), first);
    knowledge.set_namespace("a", None);
    assert_eq!(*revisions.borrow(), first + 1);
    assert_eq!(knowledge.namespace("a"), None);
}
