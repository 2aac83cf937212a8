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
    let snapshots = SnapshotStore::default();
    let revisions = snapshots.changes();
    snapshots.set_namespace("a", Some(KnownNamespace::default()));
    let first = *revisions.borrow();
    snapshots.set_namespace("a", Some(KnownNamespace::default()));
    assert_eq!(*revisions.borrow(), first);
    snapshots.set_namespace("a", None);
    assert_eq!(*revisions.borrow(), first + 1);
    assert_eq!(snapshots.namespace("a"), None);
}

/// Another write of the field manager that owns them moves the time in the managed fields. A Namespace that was created again
/// has the times of its own object.
#[rstest]
#[case::of_one(false)]
#[case::of_a_list(true)]
fn times_of_unchanged_annotations_and_labels_are_kept(#[case] is_listed: bool) {
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let namespace = |uid: &str, label: &str, time| KnownNamespace {
        uid: Some(uid.to_owned()),
        view: Namespace {
            labels: BTreeMap::from([("team".to_owned(), label.to_owned())]),
            ..Namespace::default()
        },
        annotated: at(time),
        labelled: at(time),
        ..KnownNamespace::default()
    };
    let snapshots = SnapshotStore::default();
    snapshots.set_namespace("a", Some(namespace("u1", "one", 1)));
    for (uid, label, time, kept) in [
        ("u1", "one", 2, (1, 1)),
        ("u1", "two", 3, (1, 3)),
        ("u1", "two", 4, (1, 3)),
        ("u2", "two", 5, (5, 5)),
    ] {
        let now = namespace(uid, label, time);
        if is_listed {
            snapshots.set_namespaces(HashMap::from([("a".to_owned(), Arc::new(now))]));
        } else {
            snapshots.set_namespace("a", Some(now));
        }
        let known = snapshots.namespace("a").unwrap();
        assert_eq!((known.annotated, known.labelled), (at(kept.0), at(kept.1)));
        assert_eq!(known.has_earlier_times, kept.0 != time);
    }
}

#[rstest]
#[case::observed_later(Some(10), 10)]
#[case::not_observed(None, 60)]
#[tokio::test(start_paused = true)]
async fn a_configuration_is_waited_for_up_to_a_limit(
    #[case] observed: Option<u64>,
    #[case] expected: u64,
) {
    let snapshots = SnapshotStore::default();
    let start = tokio::time::Instant::now();
    let observe = async {
        if let Some(seconds) = observed {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            snapshots.set_configuration(version(1).0);
        }
    };
    tokio::join!(snapshots.configured(Duration::from_mins(1)), observe);
    assert_eq!(start.elapsed().as_secs(), expected);
    snapshots.configured(Duration::from_mins(1)).await;
    assert_eq!(start.elapsed().as_secs() == expected, observed.is_some());
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
    secret.metadata.annotations = annotate(api::kcp::CONTENT_HASH);
    let config_map = ObjectMeta {
        annotations: annotate(api::kcp::REQUIRES_PULL_SECRET),
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
    let snapshots = SnapshotStore::default();
    let write = |(configuration, requirements, secret): &(_, Requirements, PullSecretSource)| {
        snapshots.set_pull_secret(secret.clone());
        snapshots.set_revision(Arc::clone(configuration), requirements.clone(), None);
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
            let seen = snapshots.active();
            let whole = versions.iter().any(|(configuration, _, secret)| {
                seen.configuration.as_ref() == Some(configuration) && *seen.pull_secret == *secret
            });
            assert!(whole);
            reads += 1;
        }
    });
    let last = snapshots.active();
    assert_eq!(last.configuration.as_ref(), Some(&versions[1].0));
}

#[test]
fn watches_that_write_at_the_same_time_lose_nothing() {
    let (configuration, requirements, secret) = version(1);
    for _ in 0..200 {
        let snapshots = SnapshotStore::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                snapshots.set_revision(Arc::clone(&configuration), requirements.clone(), None);
            });
            scope.spawn(|| snapshots.set_pull_secret(secret.clone()));
            scope.spawn(|| snapshots.set_trust_bundle(TrustBundlePresence::Present));
        });
        let seen = snapshots.active();
        assert_eq!(seen.configuration.as_ref(), Some(&configuration));
        assert!(*seen.pull_secret == secret);
        assert_eq!(seen.trust_bundle, TrustBundlePresence::Present);
        assert_eq!(snapshots.mismatch(), None);
    }
}

#[test]
fn a_pending_revision_notifies_watches_by_name() {
    let (configuration, requirements, secret) = version(1);
    let snapshots = SnapshotStore::default();
    snapshots.set_pull_secret(secret);
    snapshots.set_revision(Arc::clone(&configuration), requirements.clone(), None);
    let revisions = snapshots.changes();
    let before = *revisions.borrow();
    let (newer, requirements, _) = version(2);
    snapshots.set_revision(Arc::clone(&newer), requirements, None);
    assert_eq!(*revisions.borrow(), before + 1);
    assert_eq!(snapshots.configuration().as_ref(), Some(&configuration));
    assert_eq!(snapshots.latest().configuration.as_ref(), Some(&newer));
    assert!(
        snapshots
            .mismatch()
            .is_some_and(|it| it.ends_with("the previous revision stays active"))
    );
}
