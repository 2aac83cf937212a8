use testkit::pki::{Authority, Leaf};

use super::*;

fn leaf() -> Leaf {
    Authority::new("one").unwrap().leaf("localhost").unwrap()
}

fn read(leaf: &Leaf, key: &str) -> Result<CertificatePair, PairError> {
    CertificatePair::from_pem(leaf.pem.as_bytes(), key.as_bytes())
}

#[test]
fn both_dates_are_part_of_the_time_of_a_certificate() {
    let leaf = leaf();
    let Validity {
        not_before,
        not_after,
    } = read(&leaf, &leaf.key_pem()).unwrap().validity();
    let check = |now| {
        Validity {
            not_before,
            not_after,
        }
        .check(now)
    };
    let second = Duration::from_secs(1);
    assert!(check(not_before).is_ok());
    assert!(check(not_after + second / 2).is_ok());
    assert!(matches!(check(not_after + second), Err(PairError::Expired)));
    assert!(matches!(
        check(not_before - second),
        Err(PairError::NotYetValid)
    ));
}

#[test]
fn a_pair_has_its_chain_its_names_and_the_key_of_its_leaf() {
    let (leaf, other) = (leaf(), leaf());
    let pair = read(&leaf, &leaf.key_pem()).unwrap();
    assert_eq!(pair.chain(), std::slice::from_ref(&leaf.der));
    assert!(pair.covers(&["localhost".to_owned()]));
    assert!(!pair.covers(&["localhost".to_owned(), "other".to_owned()]));
    let mismatch = read(&leaf, &other.key_pem()).err().unwrap();
    assert!(mismatch.is_of_key() && matches!(mismatch, PairError::KeyMismatch));
}
