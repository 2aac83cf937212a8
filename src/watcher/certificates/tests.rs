//! Tests of the sets of files that become active, the sets that are rejected, and the reports about them.

use std::fs;
use std::sync::LazyLock;

use rstest::rstest;
use testkit::pki::rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize, date_time_ymd};
use testkit::pki::{Authority, Leaf, expired, not_yet_valid, today};
use x509_parser::der_parser::parse_der;

use super::*;
use crate::fixture::{NAMES, RUNTIME, Secret};

mod serving;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("one").unwrap());
static RSA: LazyLock<String> = LazyLock::new(|| {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
    key.unwrap().serialize_pem()
});

fn leaf() -> Leaf {
    AUTHORITY.leaf(RUNTIME).unwrap()
}

/// Returns the key inside PKCS#8: PKCS#1 of an RSA key, SEC1 of other keys.
fn unwrapped(pkcs8: &[u8]) -> Vec<u8> {
    let (_, key) = parse_der(pkcs8).unwrap();
    key.as_sequence().unwrap()[2].as_slice().unwrap().to_vec()
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

/// Returns the reported problem of the files.
fn problem(secret: &Secret) -> Option<String> {
    secret.load().report().problem
}

/// The PEM label may not match the content.
#[rstest]
#[case::pkcs8_of_p256(false, "PRIVATE KEY", false)]
#[case::sec1(false, "EC PRIVATE KEY", true)]
#[case::pkcs8_of_rsa(true, "PRIVATE KEY", false)]
#[case::pkcs1(true, "RSA PRIVATE KEY", true)]
#[case::pkcs8_labelled_as_pkcs1(true, "RSA PRIVATE KEY", false)]
#[case::pkcs1_labelled_as_pkcs8(true, "PRIVATE KEY", true)]
#[case::sec1_labelled_as_pkcs8(false, "PRIVATE KEY", true)]
fn keys_of_all_formats_load(#[case] rsa: bool, #[case] label: &str, #[case] unwrap: bool) {
    let key = if rsa {
        KeyPair::from_pem_and_sign_algo(&RSA, &PKCS_RSA_SHA256)
    } else {
        KeyPair::generate()
    };
    let leaf = AUTHORITY.leaf_of(key.unwrap(), RUNTIME, |_| ()).unwrap();
    let der = leaf.key.serialize_der();
    let der = if unwrap { unwrapped(&der) } else { der };
    let secret = Secret::new(AUTHORITY.pem(), &leaf.pem, &pem(label, &der));
    let certificates = secret.load();
    assert_eq!(certificates.report().problem, None);
    assert_eq!(certificates.report().generation, 1);
    assert!(!certificates.tls().is_empty());
}

/// Older tools write the parameters of a key before the key.
#[test]
fn sections_of_another_kind_are_passed_over() {
    let leaf = leaf();
    let parameters = pem("EC PARAMETERS", &[6, 8, 42, 134, 72, 206, 61, 3, 1, 7]);
    let key = parameters + &leaf.key_pem();
    let certificate = format!("Bag Attributes\n    friendlyName: x\n{}", leaf.pem);
    assert_eq!(
        problem(&Secret::new(AUTHORITY.pem(), &certificate, &key)),
        None
    );
}

#[rstest]
#[case::no_bundle("ca.crt", "file of CA_CERT: not found")]
#[case::no_certificate("tls.crt", "file of TLS_CERT: not found")]
#[case::no_key("tls.key", "file of TLS_KEY: not found")]
fn a_missing_file_is_named(#[case] name: &str, #[case] expected: &str) {
    let secret = Secret::of(&AUTHORITY, &leaf());
    fs::remove_file(secret.path(name)).unwrap();
    assert_eq!(problem(&secret).as_deref(), Some(expected));
}

#[rstest]
#[case::empty_bundle("ca.crt", "", "file of CA_CERT: no certificate")]
#[case::text_for_a_bundle("ca.crt", "none", "file of CA_CERT: no certificate")]
#[case::empty_certificate("tls.crt", "", "file of TLS_CERT: no certificate")]
#[case::empty_key("tls.key", "", "file of TLS_KEY: no private key")]
#[case::half_a_line(
    "tls.crt",
    "-----BEGIN CERTIF",
    "file of TLS_CERT: incomplete, or not PEM"
)]
#[case::half_a_key(
    "tls.key",
    "-----BEGIN PRIVATE KEY-----\nMIGH",
    "file of TLS_KEY: incomplete, or not PEM"
)]
#[case::half_a_bundle(
    "ca.crt",
    "-----BEGIN CERTIFICATE-----\nMIIB",
    "file of CA_CERT: incomplete, or not PEM"
)]
#[case::no_base64(
    "ca.crt",
    "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n",
    "file of CA_CERT: incomplete, or not PEM"
)]
#[case::no_x509(
    "tls.crt",
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "file of TLS_CERT: certificate is not valid X.509"
)]
#[case::no_x509_in_the_bundle(
    "ca.crt",
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "file of CA_CERT: certificate is not valid X.509"
)]
#[case::no_key_in_the_section(
    "tls.key",
    "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    "file of TLS_KEY: no private key"
)]
fn bad_content_is_named(#[case] name: &str, #[case] content: &str, #[case] expected: &str) {
    let secret = Secret::of(&AUTHORITY, &leaf());
    fs::write(secret.path(name), content).unwrap();
    assert_eq!(problem(&secret).as_deref(), Some(expected));
}

#[rstest]
#[case::ca_cert(0, "file of CA_CERT: exceeds 1048576 bytes")]
#[case::tls_cert(1, "file of TLS_CERT: exceeds 1048576 bytes")]
#[case::tls_key(2, "file of TLS_KEY: exceeds 1048576 bytes")]
fn too_large_a_file_is_named_and_the_bound_itself_allowed(
    #[case] file: usize,
    #[case] expected: &str,
) {
    let leaf = leaf();
    let secret = Secret::of(&AUTHORITY, &leaf);
    let path = secret.path(NAMES[file]);
    let mut content = fs::read_to_string(&path).unwrap();
    content.extend(std::iter::repeat_n('\n', FILE_BYTES - content.len()));
    fs::write(&path, &content).unwrap();
    assert_eq!(problem(&secret), None);
    content.push('\n');
    fs::write(&path, &content).unwrap();
    assert_eq!(problem(&secret).as_deref(), Some(expected));
}

#[test]
fn a_folder_for_a_file_is_not_read() {
    let secret = Secret::of(&AUTHORITY, &leaf());
    fs::remove_file(secret.path("tls.key")).unwrap();
    fs::create_dir(secret.path("tls.key")).unwrap();
    assert_eq!(
        problem(&secret).as_deref(),
        Some("file of TLS_KEY: not a regular file")
    );
}

#[test]
fn a_certificate_out_of_its_time_and_a_foreign_key_are_named() {
    let bundle = AUTHORITY.pem();
    let secret_of = |leaf: &Leaf, key: &Leaf| Secret::new(bundle, &leaf.pem, &key.key_pem());
    let (late, early) = (
        AUTHORITY.leaf_with(RUNTIME, expired).unwrap(),
        AUTHORITY.leaf_with(RUNTIME, not_yet_valid).unwrap(),
    );
    let cases = [
        (
            secret_of(&late, &late),
            "file of TLS_CERT: certificate has expired",
        ),
        (
            secret_of(&early, &early),
            "file of TLS_CERT: certificate is not valid yet",
        ),
        (
            secret_of(&leaf(), &leaf()),
            "file of TLS_KEY: private key does not match the certificate",
        ),
    ];
    for (secret, expected) in cases {
        let certificates = secret.load();
        assert_eq!(certificates.report().problem.as_deref(), Some(expected));
        assert!(certificates.tls().is_empty());
        assert!(certificates.outbound().borrow().is_err());
    }
}

/// A certificate that is not valid yet becomes active when its validity starts, without a change of the files.
#[test]
fn a_certificate_of_tomorrow_is_taken_tomorrow() {
    let leaf = AUTHORITY.leaf_with(RUNTIME, not_yet_valid).unwrap();
    let secret = Secret::of(&AUTHORITY, &leaf);
    let certificates = secret.load();
    certificates.poll(today());
    assert_eq!(certificates.report().generation, 0);
    let century = SystemTime::UNIX_EPOCH + Duration::from_hours(1_131_648);
    certificates.poll(century);
    let report = certificates.report();
    assert_eq!((report.generation, report.problem), (1, None));
}

/// The renewal has stopped: the files are unchanged, and the certificate expires.
#[test]
fn a_certificate_that_runs_out_in_force_is_good_no_more() {
    let mut secret = Secret::of(&AUTHORITY, &AUTHORITY.leaf_with(RUNTIME, of_2050).unwrap());
    let certificates = secret.load();
    let last = certificates.report().not_after.unwrap();
    certificates.poll(last);
    assert_eq!(certificates.report().problem, None);
    for _ in 0..10 {
        certificates.poll(last + Duration::from_secs(1));
    }
    let report = certificates.report();
    assert_eq!(
        report.problem.as_deref(),
        Some("file of TLS_CERT: certificate has expired")
    );
    assert_eq!((report.generation, report.refusals), (1, 1));
    assert!(report.expired);
    let renewed = leaf();
    secret.renew(AUTHORITY.pem(), &renewed);
    certificates.poll(last + Duration::from_secs(3));
    let report = certificates.report();
    assert_eq!((report.problem, report.generation), (None, 2));
    assert!(!report.expired);
}

/// The clock differs, for example after a pause of the node's VM. A certificate is not replaced by a certificate that is
/// not valid by the clock of the node. The report follows the clock when the clock is corrected.
#[test]
fn a_clock_that_is_ten_minutes_wrong_changes_nothing_that_is_served() {
    let (now, minute) = (SystemTime::now(), Duration::from_mins(1));
    let (behind, ahead) = (now - 10 * minute, now + 10 * minute);
    let of = |from: SystemTime, until: SystemTime| {
        let validity = move |params: &mut CertificateParams| {
            (params.not_before, params.not_after) = (from.into(), until.into());
        };
        AUTHORITY.leaf_with(RUNTIME, validity).unwrap()
    };
    let mut secret = Secret::of(&AUTHORITY, &of(now - 60 * minute, now + 5 * minute));
    let certificates = secret.load();
    let first = certificates.report();
    assert_eq!((first.generation, first.expired), (1, false));

    certificates.poll(ahead);
    let report = certificates.report();
    assert_eq!((report.generation, report.expired), (1, true));
    assert_eq!(report.not_after, first.not_after);
    assert!(!certificates.tls().is_empty());
    certificates.poll(now);
    assert_eq!(certificates.report(), first);

    secret.renew(AUTHORITY.pem(), &of(now - minute, now + 60 * minute));
    (0..2).for_each(|_| certificates.poll(behind));
    let report = certificates.report();
    assert_eq!((report.generation, report.expired), (1, false));
    assert_eq!(report.not_after, first.not_after);
    assert_eq!(
        report.problem.as_deref(),
        Some("file of TLS_CERT: certificate is not valid yet")
    );
    certificates.poll(now);
    let report = certificates.report();
    assert_eq!((report.generation, report.problem), (2, None));
}

fn of_2050(params: &mut CertificateParams) {
    params.not_after = date_time_ymd(2050, 1, 1);
}

/// A file that is truncated at any byte never replaces a valid file, and causes no panic.
#[rstest]
#[case::certificate("tls.crt")]
#[case::key("tls.key")]
#[case::bundle("ca.crt")]
fn a_file_cut_off_anywhere_keeps_what_was_good(#[case] name: &str) {
    let first = leaf();
    let mut secret = Secret::of(&AUTHORITY, &first);
    let certificates = secret.load();
    let next = Authority::new("two").unwrap();
    let second = next.leaf(RUNTIME).unwrap();
    secret.renew(next.pem(), &second);
    let whole = fs::read_to_string(secret.path(name)).unwrap();
    // The last line break is optional.
    for length in (0..whole.trim_end().len())
        .step_by(7)
        .chain([whole.trim_end().len() - 1])
    {
        fs::write(secret.path(name), &whole[..length]).unwrap();
        certificates.poll(today());
        assert_eq!(
            certificates.report().generation,
            1,
            "{length} bytes of {name}"
        );
    }
    fs::write(secret.path(name), &whole).unwrap();
    certificates.poll(today());
    assert_eq!(certificates.report().generation, 2);
}

#[test]
fn an_invalid_set_is_reported_once_at_the_second_read_and_the_valid_one_stays() {
    let leaf = leaf();
    let mut secret = Secret::of(&AUTHORITY, &leaf);
    let certificates = secret.load();
    let in_force = certificates.report();
    secret.swap(AUTHORITY.pem(), &leaf.pem, "half");
    certificates.poll(today());
    assert_eq!(
        certificates.report(),
        in_force,
        "read in the middle of a swap"
    );
    for _ in 0..10 {
        certificates.poll(today());
        let report = certificates.report();
        assert_eq!((report.generation, report.refusals), (1, 1));
        assert_eq!(
            report.problem.as_deref(),
            Some("file of TLS_KEY: no private key")
        );
    }
    assert!(certificates.outbound().borrow().is_ok());
    // A different problem is reported again. A return to the active files closes no connection.
    secret.swap("", &leaf.pem, &leaf.key_pem());
    certificates.poll(today());
    certificates.poll(today());
    assert_eq!(certificates.report().refusals, 2);
    secret.renew(AUTHORITY.pem(), &leaf);
    certificates.poll(today());
    let report = certificates.report();
    assert_eq!((report.problem, report.generation), (None, 1));
}

#[test]
fn the_pair_alone_is_enough_to_be_asked() {
    let leaf = leaf();
    let mut secret = Secret::new("", &leaf.pem, &leaf.key_pem());
    let certificates = secret.load();
    assert!(!certificates.tls().is_empty());
    assert!(certificates.report().not_after.is_some());
    assert!(matches!(
        &*certificates.outbound().borrow(),
        Err(error) if error_chain(&**error) == "file of CA_CERT: no certificate"
    ));
    secret.renew(AUTHORITY.pem(), &leaf);
    certificates.poll(today());
    assert!(certificates.outbound().borrow().is_ok());
}

#[test]
fn of_a_bundle_the_useless_is_passed_over() {
    let late = Authority::with("late", expired).unwrap();
    let leaf = leaf();
    let key = leaf.key_pem();
    let (good, bad) = (AUTHORITY.pem(), late.pem());
    let secret = Secret::new(&format!("{bad}{good}"), &leaf.pem, &key);
    assert_eq!(problem(&secret), None);
    let secret = Secret::new(bad, &leaf.pem, &key);
    assert_eq!(
        problem(&secret).as_deref(),
        Some("file of CA_CERT: certificate has expired")
    );
}

#[tokio::test(start_paused = true)]
async fn a_swapped_secret_is_in_force_within_two_polls() {
    let mut secret = Secret::of(&AUTHORITY, &leaf());
    let certificates = secret.load();
    let cancel = CancellationToken::new();
    let running = tokio::spawn(certificates.clone().run(cancel.clone()));
    let mut outbound = certificates.outbound();
    let in_force = certificates.report();
    let before = tokio::time::Instant::now();
    let whole = leaf();
    secret.swap(AUTHORITY.pem(), &whole.pem, "half written");
    // The first poll reads the files that are not complete, the second one the rest.
    tokio::time::sleep(POLL / 2).await;
    assert!(certificates.lock().problem.is_some());
    assert_eq!(certificates.report(), in_force);
    secret.renew(AUTHORITY.pem(), &whole);
    outbound.changed().await.unwrap();
    assert!(before.elapsed() <= 2 * POLL, "{:?}", before.elapsed());
    assert!(outbound.borrow().is_ok());
    assert_eq!(certificates.report().generation, 2);
    cancel.cancel();
    running.await.unwrap();
}
