//! Tests of revisions. Events and states have a short notation.
//!
//! Events: `d2:2:0` is document 2, which requires Secret 2 and no bundle (`-` means any). `s2` is Secret 2. `s2*3` is the
//! same Secret rewritten with content 3 under the annotation of 2. `s*3` is content 3 without a version, and `s0` a
//! deletion. `b2`, `b*` and `b0` are the same for the bundle; `b!` means that the kind is not served, and `b~` not
//! projected. A name is a prefix: `x/s2`. `x/y/d2:…` contains the names of Secret and bundle, and `n/-/d2:…` mounts no
//! bundle. States: `d2 s2 b+`, with `-` for a missing object, `?` for not observed, `!` for not served, `~` for not
//! projected.

use api::config::Document;
use api::kcp::{CONTENT_HASH, REQUIRES_NONE, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use policy::admission::{PullSecret, Settings};
use policy::image::Keyring;
use rstest::rstest;

use super::*;
use crate::snapshot::SecretContent;

fn configuration(number: &str, secret: &str, bundle: &str) -> Arc<Configuration> {
    let mut document = serde_json::json!({
        "overrides": {"a.io": format!("v{number}.io")},
        "imagePullSecret": {"name": secret},
    });
    if bundle != "-" {
        document["clusterTrustBundle"] = serde_json::json!({
            "name": bundle, "certWritePath": "ca.pem", "volumeMountPath": "/certs", "volumeName": "certs",
        });
    }
    let settings = Settings {
        landscape: None,
        pull_secret: "unused".to_owned(),
    };
    let document = Document::parse(&document.to_string()).unwrap();
    Arc::new(Configuration::new(&document, &settings).unwrap())
}

fn metadata(name: &str, annotations: &[(&str, &str)]) -> ObjectMeta {
    let pairs = annotations.iter();
    ObjectMeta {
        name: Some(name.to_owned()),
        annotations: Some(
            pairs
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        ),
        ..ObjectMeta::default()
    }
}

/// Returns an object as the watches observe it: `2`, `2*3`, `*3`, or `0`.
fn observed(name: &str, hash: &str) -> ObservedObject {
    match hash {
        "0" => ObservedObject::absent(name),
        "" => ObservedObject::of(&metadata(name, &[])),
        hash => ObservedObject::of(&metadata(name, &[(CONTENT_HASH, hash)])),
    }
}

fn content(text: &str) -> Vec<u8> {
    format!(r#"{{"auths":{{"{text}":{{}}}}}}"#).into_bytes()
}

fn secret(name: &str, text: &str) -> PullSecretSource {
    let (version, text) = text.split_once('*').unwrap_or((text, text));
    let object = observed(name, version);
    if version == "0" {
        return PullSecretSource::none(object);
    }
    let docker_config = content(text);
    PullSecretSource {
        known: PullSecret::Known(Keyring::parse(&docker_config).unwrap()),
        content: Some(Arc::new(SecretContent { docker_config })),
        object,
        namespace: None,
    }
}

fn bundle(name: &str, text: &str) -> ObservedObject {
    match text.trim_end_matches('*') {
        "!" => TrustBundlePresence::Unserved.into(),
        "~" => TrustBundlePresence::NotProjected.into(),
        hash => observed(name, hash),
    }
}

fn requirements(secret: &str, bundle: &str) -> Requirements {
    let given = [
        (REQUIRES_PULL_SECRET, secret),
        (REQUIRES_TRUST_BUNDLE, bundle),
    ];
    let annotations: Vec<_> = given
        .into_iter()
        .filter(|(_, value)| *value != "-")
        .map(|(key, value)| (key, if value == "0" { REQUIRES_NONE } else { value }))
        .collect();
    Requirements::read(&metadata("config", &annotations))
}

fn arrive(versions: &mut Revisions, arrival: &str) {
    let (names, what) = arrival.rsplit_once('/').unwrap_or(("n", arrival));
    let after = versions.after(|latest| match what.split_at(1) {
        ("d", text) => {
            let parts: Vec<&str> = text.split(':').collect();
            let (secret, bundle) = names.split_once('/').unwrap_or((names, "n"));
            latest.configuration = Some(configuration(parts[0], secret, bundle));
            latest.requirements = requirements(parts[1], parts[2]);
        }
        ("s", text) => latest.pull_secret = Arc::new(secret(names, text)),
        ("b", text) => latest.trust_bundle = bundle(names, text),
        other => panic!("{other:?}"),
    });
    if let Some(after) = after {
        *versions = after;
    }
}

fn state(active: &ActiveRevision) -> String {
    let document = active
        .configuration
        .as_deref()
        .map_or("-".to_owned(), |it| {
            let names = it.pull_secret().name.as_str();
            let bundle = bundle_name(it).unwrap_or("-");
            let number = (1..=9).find(|n| *configuration(&n.to_string(), names, bundle) == *it);
            number.unwrap().to_string()
        });
    let secret = active.pull_secret.content.as_ref().map_or("-".to_owned(), |it| {
        let text = String::from_utf8(it.docker_config.clone()).unwrap();
        assert!(matches!(&active.pull_secret.known, PullSecret::Known(keyring) if *keyring == Keyring::parse(text.as_bytes()).unwrap()));
        text.split('"').nth(3).unwrap().to_owned()
    });
    let bundle = match active.trust_bundle {
        TrustBundlePresence::Unknown => '?',
        TrustBundlePresence::Present => '+',
        TrustBundlePresence::Absent => '-',
        TrustBundlePresence::Unserved => '!',
        TrustBundlePresence::NotProjected => '~',
    };
    format!("d{document} s{secret} b{bundle}")
}

/// Returns version 1, complete and active.
fn begun() -> Revisions {
    let mut versions = Revisions::default();
    for arrival in ["d1:1:1", "s1", "b1"] {
        arrive(&mut versions, arrival);
    }
    assert_eq!(state(&versions.active), "d1 s1 b+");
    assert!(versions.latest.mismatches().is_empty());
    versions
}

#[rstest]
#[case::secret_first(&[("s2", "d1 s1 b+"), ("d2:2:1", "d2 s2 b+")])]
#[case::document_first(&[("d2:2:1", "d1 s1 b+"), ("s2", "d2 s2 b+")])]
#[case::three_parts(&[("b2", "d1 s1 b+"), ("s2", "d1 s1 b+"), ("d2:2:2", "d2 s2 b+")])]
#[case::only_the_document(&[("d2:1:1", "d2 s1 b+")])]
#[case::bundle_deleted_then_none(&[("b0", "d1 s1 b-"), ("d2:1:0", "d2 s1 b-")])]
#[case::bundle_deleted_and_made_anew(&[("b0", "d1 s1 b-"), ("b1", "d1 s1 b+")])]
#[case::bundle_deleted_and_made_anew_of_the_next_version(&[("b0", "d1 s1 b-"), ("b2", "d1 s1 b+"), ("d2:1:2", "d2 s1 b+")])]
#[case::bundle_deleted_while_the_secret_is_ahead(&[("s2", "d1 s1 b+"), ("b0", "d1 s1 b-"), ("b1", "d1 s1 b+"), ("d2:2:1", "d2 s2 b+")])]
#[case::bundle_not_projected_while_the_secret_is_ahead(&[("s2", "d1 s1 b+"), ("b~", "d1 s1 b~"), ("b1", "d1 s1 b+")])]
#[case::bundle_not_served_while_the_secret_is_ahead(&[("s2", "d1 s1 b+"), ("b!", "d1 s1 b!"), ("b1", "d1 s1 b+")])]
#[case::none_then_bundle_deleted(&[("d2:1:0", "d2 s1 b-"), ("b0", "d2 s1 b-")])]
#[case::none_and_the_bundle_stays(&[("d2:1:0", "d2 s1 b-"), ("b3", "d2 s1 b-")])]
#[case::secret_deleted_then_none(&[("s0", "d1 s1 b+"), ("d2:0:1", "d2 s- b+")])]
#[case::none_then_secret_deleted(&[("d2:0:1", "d2 s- b+"), ("s0", "d2 s- b+")])]
#[case::a_bundle_comes_back(&[("d2:1:0", "d2 s1 b-"), ("d3:1:3", "d2 s1 b-"), ("b3", "d3 s1 b+")])]
#[case::deleted_and_made_anew(&[("s0", "d1 s1 b+"), ("s1", "d1 s1 b+")])]
#[case::rewritten_by_a_manager_that_leaves_annotations(&[("s1*7", "d1 s7 b+"), ("s1*8", "d1 s8 b+")])]
#[case::rewritten_without_a_version(&[("s*7", "d1 s7 b+"), ("b*", "d1 s7 b+"), ("s*8", "d1 s8 b+")])]
#[case::document_without_requirements(&[("s2", "d1 s1 b+"), ("d1:-:-", "d1 s2 b+"), ("s3", "d1 s3 b+"), ("b0", "d1 s3 b-")])]
#[case::nothing_required_of_one_part(&[("d2:-:2", "d1 s1 b+"), ("s3", "d1 s1 b+"), ("b2", "d2 s3 b+")])]
#[case::flapping(&[("s2", "d1 s1 b+"), ("s1", "d1 s1 b+"), ("s2", "d1 s1 b+"), ("d2:2:1", "d2 s2 b+"), ("d1:1:1", "d2 s2 b+"), ("d2:2:1", "d2 s2 b+")])]
#[case::a_version_is_skipped(&[("s2", "d1 s1 b+"), ("s3", "d1 s1 b+"), ("d2:2:1", "d1 s1 b+"), ("d3:3:1", "d3 s3 b+")])]
#[case::taken_back(&[("d2:2:1", "d1 s1 b+"), ("d1:1:1", "d1 s1 b+")])]
#[case::not_served_is_not_waited_for(&[("d2:1:2", "d1 s1 b+"), ("b!", "d2 s1 b!")])]
#[case::not_projected_is_not_waited_for(&[("d2:1:2", "d1 s1 b+"), ("b~", "d2 s1 b~")])]
#[case::not_served_and_none(&[("b!", "d1 s1 b!"), ("d2:1:0", "d2 s1 b!")])]
#[case::a_document_without_a_bundle(&[("n/-/d2:1:9", "d2 s1 b+")])]
#[case::another_secret(&[("x/n/d2:5:1", "d1 s1 b+"), ("s5", "d1 s1 b+"), ("x/s5", "d2 s5 b+")])]
#[case::another_secret_without_requirements(&[("x/n/d2:-:1", "d1 s1 b+"), ("x/s*5", "d2 s5 b+")])]
#[case::another_bundle(&[("n/x/d2:1:5", "d1 s1 b+"), ("x/b0", "d1 s1 b+"), ("x/b5", "d2 s1 b+")])]
#[case::another_bundle_without_requirements(&[("n/x/d2:1:-", "d1 s1 b+"), ("x/b0", "d2 s1 b-")])]
#[case::another_bundle_that_is_not_projected(&[("n/x/d2:1:-", "d1 s1 b+"), ("x/b~", "d2 s1 b~")])]
fn decisions_go_over_to_whole_versions(#[case] steps: &[(&str, &str)]) {
    let mut versions = begun();
    for (arrival, expected) in steps {
        arrive(&mut versions, arrival);
        assert_eq!(state(&versions.active), *expected, "after {arrival}");
    }
}

#[rstest]
#[case::secret_is_ahead(&[("d1:1:-", "d1 s- b?"), ("s2", "d1 s2 b?"), ("b*", "d1 s2 b+"), ("d2:2:-", "d2 s2 b+"), ("s3", "d2 s2 b+")])]
#[case::document_is_ahead(&[("s1", "d- s1 b?"), ("d2:2:-", "d2 s1 b?"), ("s3", "d2 s3 b?"), ("s2", "d2 s2 b?"), ("s4", "d2 s2 b?")])]
#[case::bundle_is_missing(&[("s1", "d- s1 b?"), ("d1:1:1", "d1 s1 b?"), ("b0", "d1 s1 b-"), ("b1", "d1 s1 b+"), ("b0", "d1 s1 b-")])]
#[case::none_from_the_start(&[("d1:0:0", "d1 s- b-"), ("s1", "d1 s- b-")])]
fn after_a_restart_what_is_there_is_taken_until_it_is_whole(#[case] steps: &[(&str, &str)]) {
    let mut versions = Revisions::default();
    for (arrival, expected) in steps {
        arrive(&mut versions, arrival);
        assert_eq!(state(&versions.active), *expected, "after {arrival}");
    }
}

/// A leader that starts while it is missing must not revoke the credentials of all namespaces.
#[rstest]
#[case::required("d1:1:-", false)]
#[case::none_is_required("d1:0:-", true)]
#[case::without_requirements("d1:-:-", true)]
fn after_a_restart_a_missing_secret_is_deleted_only_if_the_document_requires_none(
    #[case] document: &str,
    #[case] expected: bool,
) {
    let mut versions = Revisions::default();
    for arrival in ["s0", document] {
        arrive(&mut versions, arrival);
    }
    assert_eq!(versions.active.lacks_pull_secret(), expected);
}

#[rstest]
#[case::whole(true, "s1", None)]
#[case::kept(
    true,
    "s2",
    Some("the pull Secret belongs to another revision; the previous revision stays active")
)]
#[case::kept_for_two(
    true,
    "s0 b2",
    Some(
        "the pull Secret is missing; the trust bundle belongs to another revision; the previous revision stays active"
    )
)]
#[case::kept_for_what_is_not_seen(
    true,
    "x/n/d2:2:1",
    Some("the pull Secret is not observed yet; the previous revision stays active")
)]
#[case::starting(false, "d1:1:1 s2", None)]
#[case::torn(
    false,
    "d1:1:1 s2 b1",
    Some(
        "the pull Secret belongs to another revision; no revision was active, objects are used as they are"
    )
)]
#[case::torn_and_mended(false, "d1:1:1 s2 b1 s1", None)]
#[case::unversioned(true, "s* b* d2:5:5", None)]
fn missing_parts_are_reported(
    #[case] running: bool,
    #[case] arrivals: &str,
    #[case] expected: Option<&str>,
) {
    let mut versions = if running {
        begun()
    } else {
        Revisions::default()
    };
    for arrival in arrivals.split(' ') {
        arrive(&mut versions, arrival);
    }
    assert_eq!(versions.mismatch.as_deref(), expected);
}

#[test]
fn what_says_the_same_is_no_news() {
    let same = begun().after(|latest| {
        latest.requirements = requirements("1", "1");
        latest.pull_secret = Arc::new(secret("n", "1"));
        latest.trust_bundle = bundle("n", "1");
    });
    assert!(same.is_none());
}

/// Returns all orders in which three watches can report their histories. Each watch reports its history in order.
fn interleavings<'a>(histories: [&[&'a str]; 3]) -> Vec<Vec<&'a str>> {
    if histories.iter().all(|it| it.is_empty()) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for index in 0..histories.len() {
        let mut rest = histories;
        let Some((first, later)) = rest[index].split_first() else {
            continue;
        };
        rest[index] = later;
        all.extend(interleavings(rest).into_iter().map(|mut order| {
            order.insert(0, first);
            order
        }));
    }
    all
}

/// Returns the subsets of a history that a watch may report: always the last state, and any of the earlier states.
fn tellings<'a>(history: &[&'a str]) -> Vec<Vec<&'a str>> {
    let Some((last, earlier)) = history.split_last() else {
        return vec![Vec::new()];
    };
    (0..1_usize << earlier.len())
        .map(|told| {
            let some = earlier
                .iter()
                .enumerate()
                .filter(|(index, _)| told & (1 << index) != 0);
            some.map(|(_, it)| *it).chain([*last]).collect()
        })
        .collect()
}

#[rstest]
#[case::contents_change(["d2:2:2 d3:3:3", "s2 s3", "b2 b3"], &["d1 s1 b+", "d2 s2 b+", "d3 s3 b+"])]
#[case::parts_go_and_come(["d2:2:0 d3:3:3", "s2 s3", "b0 b3"], &["d1 s1 b+", "d2 s2 b-", "d3 s3 b+"])]
#[case::the_secret_goes(["d2:0:2 d3:3:2", "s0 s3", "b2"], &["d1 s1 b+", "d2 s- b+", "d3 s3 b+"])]
#[case::forth_and_back(["d2:2:2 d1:1:1", "s2 s1", "b2 b1"], &["d1 s1 b+", "d2 s2 b+", "d1 s1 b+"])]
#[case::a_part_is_deleted_and_made_anew(["d2:2:2", "s0 s2", "b0 b2"], &["d1 s1 b+", "d2 s2 b+"])]
#[case::other_names(["x/y/d2:2:2 d3:3:3", "x/s2 s3", "y/b2 b3"], &["d1 s1 b+", "d2 s2 b+", "d3 s3 b+"])]
fn in_any_order_only_whole_versions_are_in_force_and_the_last_one_wins(
    #[case] histories: [&str; 3],
    #[case] versions: &[&str],
) {
    let [documents, secrets, bundles] =
        histories.map(|it| tellings(&it.split(' ').collect::<Vec<_>>()));
    let mut orders = Vec::new();
    for document in &documents {
        for secret in &secrets {
            orders.extend(
                bundles
                    .iter()
                    .flat_map(|it| interleavings([document, secret, it])),
            );
        }
    }
    assert!(orders.len() >= 10, "{}", orders.len());
    for order in orders {
        let (mut now, mut is_deleted) = (begun(), false);
        for arrival in &order {
            arrive(&mut now, arrival);
            if arrival.contains('b') {
                is_deleted = arrival.ends_with("b0");
            }
            let state = state(&now.active);
            // A deleted bundle is not mounted, whatever the version requires.
            let of_version = state.replace("b-", if is_deleted { "b+" } else { "b-" });
            assert!(
                versions.contains(&&*state) || versions.contains(&&*of_version),
                "{state} after {arrival} in {order:?}"
            );
        }
        assert_eq!(
            state(&now.active),
            versions[versions.len() - 1],
            "{order:?}"
        );
        assert!(now.latest.mismatches().is_empty(), "{order:?}");
    }
}

#[test]
fn in_any_order_a_start_ends_in_the_whole_version() {
    let orders = interleavings([&["d1:1:1", "d2:2:2"], &["s1", "s2"], &["b1", "b2"]]);
    assert_eq!(orders.len(), 90);
    for order in orders {
        let mut now = Revisions::default();
        for arrival in &order {
            arrive(&mut now, arrival);
        }
        assert_eq!(state(&now.active), "d2 s2 b+", "{order:?}");
        assert!(now.latest.mismatches().is_empty(), "{order:?}");
        // From here on the version behaves like any other version.
        arrive(&mut now, "s3");
        assert_eq!(state(&now.active), "d2 s2 b+", "{order:?}");
    }
}
