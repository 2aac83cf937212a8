use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;
use crate::certificate::fixtures::{DAY, after, epoch, material, settings, successor};
use serve::pair::Validity;

fn authorities(material: &Material) -> Bundle {
    Bundle::read(&material.authorities)
}

#[test]
fn leaf_and_authority_have_their_key_usages() {
    let now = epoch();
    let material = material(now);
    let pair = material.pair().unwrap();
    let lived = Validity {
        not_before: now - BACKDATED,
        not_after: now + DAY * 90,
    };
    assert_eq!(pair.validity(), lived);
    assert!(pair.covers(&settings().dns_names));

    let (_, leaf) = X509Certificate::from_der(&pair.chain()[0]).unwrap();
    assert!(!leaf.is_ca());
    let usage = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
    assert_eq!(pair.chain().len(), 1, "the root is not sent");

    let bundle = authorities(&material);
    let root = bundle.certificates().next().unwrap();
    assert_eq!(Validity::of(root).unwrap(), lived);
    let (_, root) = X509Certificate::from_der(root).unwrap();
    assert!(root.is_ca());
    let constraints = root.basic_constraints().unwrap().unwrap().value;
    assert_eq!(constraints.path_len_constraint, Some(0));
    let usage = root.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && !usage.digital_signature());
    assert_eq!(leaf.issuer(), root.subject());
    leaf.verify_signature(Some(root.public_key())).unwrap();
    root.verify_signature(None).unwrap();
}

#[test]
fn no_two_are_alike() {
    let (one, two) = (material(epoch()), material(epoch()));
    let both = [authorities(&one), authorities(&two)];
    let roots = both
        .each_ref()
        .map(|bundle| bundle.certificates().next().unwrap());
    let [one, two] = roots.map(|root| X509Certificate::from_der(root).unwrap().1);
    assert_ne!(one.subject(), two.subject());
    assert_ne!(one.raw_serial(), two.raw_serial());
}

#[test]
fn the_stored_key_is_the_leafs_and_no_other_key_is_stored() {
    let material = material(epoch());
    let text =
        String::from_utf8([material.chain, material.key.to_vec(), material.authorities].concat())
            .unwrap();
    assert_eq!(
        text.matches("PRIVATE KEY-----").count(),
        2,
        "begin and end of one key"
    );
}

#[test]
fn earlier_authorities_are_carried_while_they_are_valid_and_not_too_many() {
    let start = epoch();
    let mut newest = material(start);
    let first = authorities(&newest);
    for hour in 1..=10 {
        let now = start + Duration::from_secs(hour * 3600);
        newest = successor(now, &authorities(&newest));
    }
    let bundle = authorities(&newest);
    assert_eq!(bundle.certificates().count(), 1 + CARRIED);
    let first = first.certificates().next().unwrap();
    assert!(
        bundle.certificates().all(|known| known != first),
        "the oldest went"
    );
    let name = settings().server_name().to_owned();
    let own = Bundle::of(bundle.certificates().take(1).cloned());
    let pair = newest.pair().unwrap();
    assert!(
        own.verifies(&pair, &name, after(start, 1)),
        "the first one is the one in use"
    );

    let late = successor(after(start, 100), &bundle);
    assert_eq!(
        authorities(&late).certificates().count(),
        1,
        "expired ones are left out"
    );
}

#[test]
fn impossible_names_are_refused() {
    let umlaut = vec!["ümlaut".to_owned()];
    let refused = issue(&umlaut, epoch(), &Bundle::default()).err().unwrap();
    assert!(
        matches!(refused, rcgen::Error::InvalidAsn1String(_)),
        "{refused:?}"
    );
}
