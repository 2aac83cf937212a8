use policy::admission::TrustBundlePresence;
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

#[rstest]
#[case::another_type(secret("Opaque", ".dockerconfigjson", "s3cret"), false)]
#[case::no_key(secret("kubernetes.io/dockerconfigjson", "config", "{}"), false)]
#[case::no_auths(
    secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "{}"),
    false
)]
#[case::not_json(
    secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "s3cret"),
    true
)]
#[case::auth_is_not_base64(
    secret(
        "kubernetes.io/dockerconfigjson",
        ".dockerconfigjson",
        r#"{"auths":{"a.io":{"auth":"%"}}}"#
    ),
    true
)]
fn a_secret_that_fails_a_kubelets_pulls_is_invalid_and_any_other_unusable_one_is_unknown(
    #[case] secret: Secret,
    #[case] invalid: bool,
) {
    let error = PullSecretSource::read(&secret).err().unwrap();
    let source = PullSecretSource::unusable(&secret.metadata, &error);
    let expected = if invalid {
        PullSecret::Invalid
    } else {
        PullSecret::Unknown
    };
    assert_eq!(source.known, expected);
    assert!(source.content.is_none());
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

fn version(number: u32) -> (Arc<Configuration>, Requirements, PullSecretSource) {
    let text = format!(r#"{{"overrides":{{"a.io":"v{number}.io"}}}}"#);
    let settings = policy::admission::Settings {
        landscape: None,
        pull_secret: "registry-credentials".to_owned(),
    };
    let document = api::config::Document::parse(&text).unwrap();
    let configuration = Configuration::new(&document, &settings).unwrap();
    let mut secret = secret(
        "kubernetes.io/dockerconfigjson",
        ".dockerconfigjson",
        &format!(r#"{{"auths":{{"v{number}.io":{{}}}}}}"#),
    );
    let hash = format!("hash-{number}");
    let annotate = |key: &str| Some(BTreeMap::from([(key.to_owned(), hash.clone())]));
    secret.metadata.annotations = annotate(api::runtimes::CONTENT_HASH);
    let config_map = ObjectMeta {
        annotations: annotate(api::runtimes::REQUIRES_PULL_SECRET),
        ..ObjectMeta::default()
    };
    (
        Arc::new(configuration),
        Requirements::read(&config_map),
        PullSecretSource::read(&secret).unwrap(),
    )
}

#[test]
fn a_reader_beside_the_watches_never_sees_halves_of_two_versions() {
    let versions = [version(1), version(2)];
    let knowledge = Knowledge::default();
    let write = |(configuration, requirements, secret): &(_, Requirements, PullSecretSource)| {
        knowledge.set_pull_secret(secret.clone());
        knowledge.offer(Arc::clone(configuration), requirements.clone());
    };
    write(&versions[0]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..2000 {
                write(&versions[round % 2]);
            }
        });
        let mut reads = 0;
        while !writer.is_finished() || reads == 0 {
            let seen = knowledge.in_force();
            let whole = versions.iter().any(|(configuration, _, secret)| {
                seen.configuration.as_ref() == Some(configuration) && *seen.pull_secret == *secret
            });
            assert!(whole);
            reads += 1;
        }
    });
    let last = knowledge.in_force();
    assert_eq!(last.configuration.as_ref(), Some(&versions[1].0));
}

#[test]
fn watches_that_write_at_the_same_time_lose_nothing() {
    let (configuration, requirements, secret) = version(1);
    for _ in 0..200 {
        let knowledge = Knowledge::default();
        std::thread::scope(|scope| {
            scope.spawn(|| knowledge.offer(Arc::clone(&configuration), requirements.clone()));
            scope.spawn(|| knowledge.set_pull_secret(secret.clone()));
            scope.spawn(|| knowledge.set_trust_bundle(TrustBundlePresence::Present));
        });
        let seen = knowledge.in_force();
        assert_eq!(seen.configuration.as_ref(), Some(&configuration));
        assert!(*seen.pull_secret == secret);
        assert_eq!(seen.trust_bundle, TrustBundlePresence::Present);
        assert_eq!(knowledge.waiting(), None);
    }
}

#[test]
fn what_is_only_waited_for_wakes_those_who_watch_by_name() {
    let (configuration, requirements, secret) = version(1);
    let knowledge = Knowledge::default();
    knowledge.set_pull_secret(secret);
    knowledge.offer(Arc::clone(&configuration), requirements.clone());
    let revisions = knowledge.revisions();
    let before = *revisions.borrow();
    let (newer, requirements, _) = version(2);
    knowledge.offer(Arc::clone(&newer), requirements);
    assert_eq!(*revisions.borrow(), before + 1);
    assert_eq!(knowledge.configuration().as_ref(), Some(&configuration));
    assert_eq!(knowledge.newest().configuration.as_ref(), Some(&newer));
    assert!(knowledge.waiting().is_some_and(|it| it.kept));
}
