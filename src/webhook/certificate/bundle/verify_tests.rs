use rcgen::SanType;
use rstest::rstest;
use testkit::pki::{Authority, expired};

use super::*;
use crate::certificate::Material;
use crate::certificate::fixtures::{after, epoch, material, pair_for, settings};

fn error(material: &Material) -> String {
    material
        .pair()
        .err()
        .map(|error| format!("{error:?}"))
        .unwrap_or_default()
}

#[rstest]
#[case::nothing(Material::default(), "NoCertificate")]
#[case::no_key(Material { key: Vec::new().into(), ..material(epoch()) }, "NoKey")]
#[case::garbage(Material { chain: b"garbage".to_vec(), ..material(epoch()) }, "NoCertificate")]
#[case::other_key(Material { key: material(epoch()).key, ..material(epoch()) }, "KeyMismatch")]
fn what_cannot_be_served_is_named(#[case] material: Material, #[case] expected: &str) {
    let found = error(&material);
    assert!(found.starts_with(expected), "{found}");
}

#[rstest]
#[case::asked_for("rt-bootstrapper-webhook-service.kyma-system.svc", 1, true)]
#[case::last_day("rt-bootstrapper-webhook-service.kyma-system.svc", 90, true)]
#[case::expired("rt-bootstrapper-webhook-service.kyma-system.svc", 91, false)]
#[case::long_name(
    "rt-bootstrapper-webhook-service.kyma-system.svc.cluster.local",
    1,
    true
)]
#[case::short_name("rt-bootstrapper-webhook-service", 1, true)]
#[case::another_namespace("rt-bootstrapper-webhook-service.default.svc", 1, false)]
#[case::no_name("", 1, false)]
fn its_own_authority_verifies_it(#[case] name: &str, #[case] day: u32, #[case] expected: bool) {
    let start = epoch();
    let material = material(start);
    let pair = material.pair().unwrap();
    let bundle = Bundle::read(&material.authorities);
    assert_eq!(bundle.verifies(&pair, name, after(start, day)), expected);
}

#[test]
fn no_other_bundle_verifies_it() {
    let now = epoch();
    let pair = material(now).pair().unwrap();
    let other = Bundle::read(&material(now).authorities);
    let name = settings().server_name().to_owned();
    assert!(!other.verifies(&pair, &name, now));
    assert!(!Bundle::default().verifies(&pair, &name, now));
}

#[test]
fn an_expired_authority_verifies_nothing_though_the_leaf_is_valid() {
    // rustls alone would accept this certificate; an API server rejects it.
    let now = epoch();
    let root = Authority::with("root", expired).unwrap();
    let names = settings()
        .dns_names
        .into_iter()
        .map(|name| name.try_into().unwrap());
    let leaf = root.leaf_with("leaf", |params| {
        params.subject_alt_names = names.map(SanType::DnsName).collect();
    });
    let leaf = leaf.unwrap();
    let material = Material {
        chain: leaf.pem.clone().into_bytes(),
        key: leaf.key_pem().into_bytes().into(),
        authorities: root.pem().as_bytes().to_vec(),
    };
    let pair = material.pair().unwrap();
    assert!(pair.validity().check(now).is_ok());
    let bundle = Bundle::read(&material.authorities);
    assert!(!bundle.verifies(&pair, settings().server_name(), now));
}

#[test]
fn names_must_all_be_there() {
    let names = settings().dns_names;
    let pair = material(epoch()).pair().unwrap();
    assert!(pair.covers(&names));
    assert!(pair.covers(&names[1..]));
    let fewer = pair_for(epoch(), &Bundle::default(), &names[..2])
        .pair()
        .unwrap();
    assert!(!fewer.covers(&names));
}
