use super::*;
use crate::certificate::fixtures::{DAY, after, epoch, material, successor};

fn bundle_of(pem: &[u8]) -> Bundle {
    Bundle::read(pem)
}

#[test]
fn what_is_written_is_read_back_and_looks_as_others_write_it() {
    let pem = material(epoch()).authorities;
    let text = std::str::from_utf8(&pem).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.first(), Some(&"-----BEGIN CERTIFICATE-----"));
    assert_eq!(lines.last(), Some(&"-----END CERTIFICATE-----"));
    let (last, full) = lines[1..lines.len() - 1].split_last().unwrap();
    assert!(full.iter().all(|line| line.len() == 64), "{text}");
    assert!((1..=64).contains(&last.len()), "{text}");
    // A second PEM parser returns the same result.
    let blocks: Vec<_> = x509_parser::pem::Pem::iter_from_buffer(&pem).collect();
    assert_eq!(blocks.len(), 1);
    let read: Vec<_> = bundle_of(&pem).certificates().cloned().collect();
    assert_eq!(read[0].as_ref(), blocks[0].as_ref().unwrap().contents);
    assert_eq!(bundle_of(&pem).to_pem().into_bytes(), pem);
}

#[test]
fn garbage_is_no_certificate_and_hides_none_before_it() {
    assert!(bundle_of(b"").is_empty());
    assert!(bundle_of(b"no certificate").is_empty());
    let hollow = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(bundle_of(hollow).is_empty());
    let key = material(epoch()).key;
    assert!(bundle_of(&key).is_empty());
    let good = material(epoch()).authorities;
    let mixed = [
        &good[..],
        &hollow[..],
        b"-----BEGIN CERTIFICATE-----\nAAAA\n",
    ]
    .concat();
    assert_eq!(bundle_of(&mixed), bundle_of(&good));
    let twice = [&good[..], &good[..]].concat();
    assert_eq!(bundle_of(&twice), bundle_of(&good));
}

#[test]
fn validity_decides_which_authorities_stay() {
    let start = epoch();
    let old = bundle_of(&material(start).authorities);
    let both = bundle_of(&successor(after(start, 60), &old).authorities);
    assert_eq!(both.certificates().count(), 2);
    assert_eq!(both.first_expiry(), old.first_expiry());

    let on_day = |day| after(start, day);
    // The second CA is not valid on the first day, but it has not expired.
    assert_eq!(both.valid(on_day(1)), old);
    assert_eq!(both.unexpired(on_day(1)), both);
    assert_eq!(both.valid(on_day(70)), both);
    assert_eq!(both.unexpired(on_day(91)), both.first(1));
    assert!(both.unexpired(on_day(151)).is_empty());
    assert_eq!(old.first_expiry(), Some(start + DAY * 90));
}
