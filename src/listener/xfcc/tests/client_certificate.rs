//! Tests of the certificate in a header, and of headers without a certificate.

use http::HeaderValue;
use proptest::prelude::*;
use rstest::rstest;

use super::super::ForwardedError as E;
use super::super::*;
use testkit::pki::Leaf;

use crate::fixture::{GATEWAY, ca, element, hash, url_encode, watcher};

fn headers(values: &[&str]) -> HeaderMap {
    let value = |text: &&str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
    let values = values.iter().map(value);
    values.map(|value| (XFCC_HEADER, value)).collect()
}

fn named(headers: &HeaderMap, hops: &TrustedHops) -> Result<CertificateDer<'static>, E> {
    client_certificate(only_value(headers)?, hops)
}

fn one_hop() -> TrustedHops {
    TrustedHops::One {
        gateway: GATEWAY.to_owned(),
    }
}

fn sidecar(uri: &str) -> String {
    format!(r#"By=spiffe://cluster.local/ns/kcp-system/sa/klm;Hash=ab;Subject="";URI={uri}"#)
}

/// Returns headers that contain `leaf`.
fn good(leaf: &Leaf) -> Vec<String> {
    let (cert, hash) = (url_encode(&leaf.pem), hash(leaf));
    vec![
        element(leaf),
        format!("Cert={cert}"),
        // A value ends at `;`, `,` or the end, and its quotes are removed.
        format!(r#"Cert="{cert}";Hash={hash}"#),
        format!("Hash={};cERT={cert}", hash.to_uppercase()),
        // The encoding of `url.QueryEscape` in Go, which the tests of the public listener use.
        format!("Cert={}", cert.replace("%20", "+")),
        format!(r#"Subject="CN=x;Cert=y,Cert=z";Cert="{cert}""#),
        format!(r#"Subject="CN=\",Cert=\"y";Cert="{cert}";Chain="%2D""#),
        format!("Cert={cert};URI=a;URI=b;DNS=c;DNS=d"),
    ]
}

#[test]
fn the_gateways_element_names_the_client() {
    let leaf = watcher(&ca());
    for header in good(&leaf) {
        let found = named(&headers(&[&header]), &TrustedHops::None).unwrap();
        assert_eq!(found, leaf.der, "{header}");
    }
}

#[test]
fn behind_a_sidecar_the_first_element_is_the_clients() {
    let leaf = watcher(&ca());
    let header = format!("{},{}", element(&leaf), sidecar(GATEWAY));
    let found = named(&headers(&[&header]), &one_hop()).unwrap();
    assert_eq!(found, leaf.der);
}

/// Replaces names in braces in each of `values` by parts of a valid header.
fn filled(values: &[&str], leaf: &Leaf, other: &Leaf) -> Vec<String> {
    let parts = [
        ("{element}", element(leaf)),
        ("{cert}", url_encode(&leaf.pem)),
        ("{other cert}", url_encode(&other.pem)),
        ("{other hash}", hash(other)),
        ("{gateway}", GATEWAY.to_owned()),
        ("{sidecar}", sidecar(GATEWAY)),
        (
            "{neighbour}",
            sidecar("spiffe://cluster.local/ns/shop/sa/shop"),
        ),
        ("{long}", "x".repeat(XFCC_BYTES)),
    ];
    let fill = |value: &&str| {
        let value = (*value).to_owned();
        parts
            .iter()
            .fold(value, |text, (name, part)| text.replace(name, part))
    };
    values.iter().map(fill).collect()
}

/// The cases without a client certificate.
#[rstest]
#[case::none(&[], E::Missing)]
#[case::two_headers(&["{element}", "{element}"], E::SeveralHeaders)]
#[case::over_32_kb(&["{element};Chain={long}"], E::TooLong)]
#[case::bad_grammar(&["Cert=\""], E::Grammar(GrammarError("quoted value without end")))]
#[case::two_elements(&["{element},{element}"], E::Elements)]
#[case::a_sidecar_where_there_is_none(&["{element},{sidecar}"], E::Elements)]
// A hop within the mesh (lifecycle-manager PR 329).
#[case::no_cert(&["{sidecar}"], E::NoCertificate)]
#[case::an_empty_cert(&["Cert=;Other=foo"], E::NoCertificate)]
#[case::cert_within_a_quoted_subject(&["Subject=\"O=;Cert={cert}\""], E::NoCertificate)]
#[case::a_key_that_ends_in_cert(&["XCert={cert}"], E::NoCertificate)]
#[case::two_certs(&["Cert={other cert};cert={cert}"], E::KeyTwice)]
#[case::two_hashes(&["{element};Hash=1"], E::KeyTwice)]
#[case::a_bad_escape(&["Cert=%zz"], E::UrlEncoding)]
#[case::a_cut_escape(&["Cert={cert}%4"], E::UrlEncoding)]
#[case::a_signed_escape(&["Cert=%+4"], E::UrlEncoding)]
#[case::escaped_bytes_that_are_no_text(&["Cert=%ff%fe"], E::Pem)]
#[case::no_pem(&["Cert=abc"], E::Pem)]
#[case::another_hash(&["Cert={cert};Hash={other hash}"], E::Hash)]
#[case::an_empty_hash(&["Cert={cert};Hash="], E::Hash)]
fn other_headers_name_no_client(#[case] values: &[&str], #[case] expected: ForwardedError) {
    assert_eq!(refused(values, &TrustedHops::None), expected);
}

#[rstest]
#[case::two_headers(&["{element}", "{sidecar}"], E::SeveralHeaders)]
#[case::one_element(&["{element}"], E::Elements)]
#[case::three_elements(&["{element},{element},{sidecar}"], E::Elements)]
#[case::another_last_hop(&["{element},{neighbour}"], E::NotTheGateway)]
#[case::a_last_hop_of_two_names(&["{element},{sidecar};URI={gateway}"], E::NotTheGateway)]
#[case::a_nameless_last_hop(&["{element},Hash=1"], E::NotTheGateway)]
#[case::the_gateway_as_by(&["{element},By={gateway};URI="], E::NotTheGateway)]
#[case::the_gateway_within_a_quoted_subject(&["{element},Subject=\"O=;URI={gateway}\""], E::NotTheGateway)]
#[case::the_sidecar_first(&["{sidecar},{element}"], E::NotTheGateway)]
fn behind_a_sidecar_other_headers_name_no_client(
    #[case] values: &[&str],
    #[case] expected: ForwardedError,
) {
    assert_eq!(refused(values, &one_hop()), expected);
}

fn refused(values: &[&str], hops: &TrustedHops) -> ForwardedError {
    let authority = ca();
    let values = filled(values, &watcher(&authority), &watcher(&authority));
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    named(&headers(&values), hops).unwrap_err()
}

/// There must be exactly one certificate without surrounding text.
#[rstest]
#[case::two_blocks(|leaf: &Leaf| format!("{0}{0}", leaf.pem))]
#[case::a_private_key(|leaf: &Leaf| leaf.key_pem())]
#[case::a_key_then_a_certificate(|leaf: &Leaf| format!("{}{}", leaf.key_pem(), leaf.pem))]
#[case::a_certificate_then_a_key(|leaf: &Leaf| format!("{}{}", leaf.pem, leaf.key_pem()))]
#[case::text_behind(|leaf: &Leaf| format!("{}x", leaf.pem))]
#[case::text_before(|leaf: &Leaf| format!("x{}", leaf.pem))]
#[case::no_base64(|leaf: &Leaf| leaf.pem.replacen("MII", "!!!", 1))]
#[case::no_end(|leaf: &Leaf| leaf.pem.replace("-----END CERTIFICATE-----", ""))]
#[case::another_label(|leaf: &Leaf| leaf.pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE"))]
fn other_pem_names_no_client(#[case] pem: fn(&Leaf) -> String) {
    let leaf = watcher(&ca());
    let pem = pem(&leaf);
    assert_ne!(pem, leaf.pem);
    let header = format!("Cert={}", url_encode(&pem));
    let error = named(&headers(&[&header]), &TrustedHops::None).unwrap_err();
    assert_eq!(error, E::Pem);
}

#[test]
fn bytes_that_are_no_text_name_no_client() {
    let value = HeaderValue::from_bytes(b"Cert=\xff").unwrap();
    let headers = HeaderMap::from_iter([(XFCC_HEADER, value)]);
    let error = named(&headers, &TrustedHops::None).unwrap_err();
    assert!(matches!(error, ForwardedError::NotText));
}

/// A value of 32 768 bytes is accepted, and one more byte is rejected.
#[rstest]
#[case(XFCC_BYTES, true)]
#[case(XFCC_BYTES + 1, false)]
fn the_bound_itself_is_read(#[case] length: usize, #[case] read: bool) {
    let leaf = watcher(&ca());
    let start = format!("Cert={};Subject=", url_encode(&leaf.pem));
    let header = start.clone() + &"x".repeat(length - start.len());
    let found = named(&headers(&[&header]), &TrustedHops::None);
    assert_eq!(found.is_ok(), read);
}

proptest! {
    #[test]
    fn no_header_makes_it_fail_badly(
        text in prop_oneof![any::<String>(), r#"Cert="?(%[0-9a-f]{2}|[a-z+]|%){0,64}"?"#],
    ) {
        if let Ok(value) = HeaderValue::from_str(&text) {
            let headers = HeaderMap::from_iter([(XFCC_HEADER, value)]);
            prop_assert!(named(&headers, &TrustedHops::None).is_err());
        }
    }

    #[test]
    fn what_is_url_encoded_is_decoded(text in any::<String>()) {
        let escape = |encoded: String, byte: u8| encoded + &format!("%{byte:02X}");
        let encoded = text.bytes().fold(String::new(), escape);
        prop_assert_eq!(url_decode(&encoded).unwrap(), text.into_bytes());
    }
}
