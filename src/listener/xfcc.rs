//! The header `X-Forwarded-Client-Cert`: the grammar of Envoy, and the one certificate that the client presented to the gateway.
//!
//! A header is a comma-separated list of elements, one for each hop. An element is a list of `key=value`, separated by
//! semicolons. Keys are case-insensitive. A value that contains `,`, `;` or `=` should be in double quotes. In the quotes a
//! backslash escapes a quote or a backslash. Envoy also writes URIs with `=` without quotes.
//!
//! Invariant: a text has one interpretation or none, and the certificate comes from exactly one header, element, `Cert` and
//! PEM block. Ambiguous input is rejected, because another party could have added content. Fuzzing compiles only this file.

use std::borrow::Cow;

use base64_simd::STANDARD as BASE64;
use http::{HeaderMap, HeaderName};
use memchr::{memchr, memchr2};
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

/// Header in which Envoy describes its client.
pub const XFCC_HEADER: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

/// Maximum length of a header value, in bytes. The public listener has the same limit.
pub const XFCC_BYTES: usize = 32 * 1024;

const PEM_BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
const PEM_END: &[u8] = b"-----END CERTIFICATE-----";
const BLANKS: [char; 2] = [' ', '\t'];

/// Number of proxies that write into the header before the listener reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustedHops {
    /// 0: only the gateway, with `forwardClientCertDetails: SANITIZE_SET`. The header has exactly one element.
    None,
    /// 1: the gateway, followed by the sidecar of the listener, which appends the identity of the gateway. The header has
    /// exactly two elements, and the first one is of the client.
    One {
        /// SPIFFE ID of the gateway, which must be the `URI` of the second element, such as
        /// `spiffe://cluster.local/ns/istio-system/sa/istio-ingressgateway`.
        gateway: String,
    },
}

/// Violation of the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct GrammarError(&'static str);

/// Reason why the header contains no client certificate. The messages quote no part of the input.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForwardedError {
    #[error("header X-Forwarded-Client-Cert is missing")]
    Missing,
    #[error("more than one header X-Forwarded-Client-Cert")]
    SeveralHeaders,
    #[error("header X-Forwarded-Client-Cert exceeds {XFCC_BYTES} bytes")]
    TooLong,
    #[error("header X-Forwarded-Client-Cert: not text")]
    NotText,
    #[error("header X-Forwarded-Client-Cert: malformed")]
    Grammar(#[source] GrammarError),
    #[error(
        "header X-Forwarded-Client-Cert: number of elements differs from the number of trusted hops"
    )]
    Elements,
    #[error("last hop is not the gateway")]
    NotTheGateway,
    #[error("element of the client has no certificate")]
    NoCertificate,
    #[error("element of the client has a duplicate key")]
    KeyTwice,
    #[error("certificate: not URL-encoded")]
    UrlEncoding,
    #[error("certificate: expected exactly one PEM block of type CERTIFICATE")]
    Pem,
    #[error("hash of the certificate differs from the header")]
    Hash,
}

/// Returns the value of the only header of that name.
pub(crate) fn only_value(headers: &HeaderMap) -> Result<&str, ForwardedError> {
    let mut values = headers.get_all(XFCC_HEADER).iter();
    let value = values.next().ok_or(ForwardedError::Missing)?;
    if values.next().is_some() {
        return Err(ForwardedError::SeveralHeaders);
    }
    if value.len() > XFCC_BYTES {
        return Err(ForwardedError::TooLong);
    }
    std::str::from_utf8(value.as_bytes()).map_err(|_| ForwardedError::NotText)
}

/// Returns the certificate of the client, which the gateway forwards in the header value.
pub(crate) fn client_certificate(
    value: &str,
    hops: &TrustedHops,
) -> Result<CertificateDer<'static>, ForwardedError> {
    let elements = parse(value).map_err(ForwardedError::Grammar)?;
    let client = match (hops, elements.as_slice()) {
        (TrustedHops::None, [client]) => client,
        (TrustedHops::One { gateway }, [client, sidecar]) => {
            if !sidecar.values("URI").eq([gateway]) {
                return Err(ForwardedError::NotTheGateway);
            }
            client
        }
        _ => return Err(ForwardedError::Elements),
    };
    let encoded = once(client, "Cert")?
        .filter(|value| !value.is_empty())
        .ok_or(ForwardedError::NoCertificate)?;
    let certificate = only_certificate(&url_decode(encoded)?)?;
    if let Some(hash) = once(client, "Hash")? {
        let (pairs, rest) = hash.as_bytes().as_chunks::<2>();
        let bytes = pairs.iter().map(|pair| hex_byte(*pair));
        let digest = Sha256::digest(&certificate);
        if !rest.is_empty() || !bytes.eq(digest.into_iter().map(Some)) {
            return Err(ForwardedError::Hash);
        }
    }
    Ok(certificate)
}

fn once<'e>(element: &'e Element<'_>, key: &'e str) -> Result<Option<&'e str>, ForwardedError> {
    let mut values = element.values(key);
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(ForwardedError::KeyTwice),
    }
}

/// Decodes URL encoding. `+` is a blank, as in the public listener. Envoy writes `%20` for a blank and `%2B` for a plus,
/// and form encoders write `+` and `%2B`, so both are decoded correctly.
fn url_decode(text: &str) -> Result<Vec<u8>, ForwardedError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(at) = memchr2(b'%', b'+', rest) {
        decoded.extend_from_slice(&rest[..at]);
        let (byte, behind) = match &rest[at..] {
            [b'+', behind @ ..] => (Some(b' '), behind),
            [_, high, low, behind @ ..] => (hex_byte([*high, *low]), behind),
            _ => (None, rest),
        };
        decoded.push(byte.ok_or(ForwardedError::UrlEncoding)?);
        rest = behind;
    }
    decoded.extend_from_slice(rest);
    Ok(decoded)
}

/// Returns the byte of two hexadecimal digits.
fn hex_byte(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

/// Returns the content of one PEM block without surrounding text.
fn only_certificate(pem: &[u8]) -> Result<CertificateDer<'static>, ForwardedError> {
    let inner = pem
        .trim_ascii()
        .strip_prefix(PEM_BEGIN)
        .and_then(|rest| rest.strip_suffix(PEM_END))
        .ok_or(ForwardedError::Pem)?;
    let mut base64: Vec<u8> = Vec::with_capacity(inner.len());
    for line in inner.split(u8::is_ascii_whitespace) {
        base64.extend_from_slice(line);
    }
    let length = BASE64.decode_inplace(&mut base64).map(|der| der.len());
    base64.truncate(length.map_err(|_| ForwardedError::Pem)?);
    Ok(base64.into())
}

/// The pairs of one hop, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pairs: Vec<(&'a str, Cow<'a, str>)>,
}

impl Element<'_> {
    /// Returns the values of `key`, in order.
    pub(crate) fn values<'e>(&'e self, key: &'e str) -> impl Iterator<Item = &'e str> {
        self.pairs
            .iter()
            .filter(move |(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, value)| value.as_ref())
    }
}

/// Parses a whole header value.
pub(crate) fn parse(text: &str) -> Result<Vec<Element<'_>>, GrammarError> {
    let (mut elements, mut pairs, mut rest) = (Vec::new(), Vec::new(), text);
    loop {
        let (parsed, behind) = pair(rest)?;
        pairs.push(parsed);
        if let Some(next) = behind.strip_prefix(';') {
            rest = next;
            continue;
        }
        let pairs = std::mem::take(&mut pairs);
        elements.push(Element { pairs });
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(elements),
        }
    }
}

/// Parses one pair. Returns the pair, and the text after it, which is empty or starts with a comma or a semicolon.
fn pair(text: &str) -> Result<((&str, Cow<'_, str>), &str), GrammarError> {
    let (key, rest) = text
        .split_once('=')
        .ok_or(GrammarError("pair without '='"))?;
    let key = key.trim_matches(BLANKS);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(GrammarError("key: not a word"));
    }
    if let Some(quoted) = rest.strip_prefix('"') {
        let (value, behind) = unquote(quoted)?;
        return Ok(((key, value), behind));
    }
    let end = memchr2(b',', b';', rest.as_bytes()).unwrap_or(rest.len());
    let (value, behind) = rest.split_at(end);
    if memchr(b'"', value.as_bytes()).is_some() {
        return Err(GrammarError("unquoted value contains a quote"));
    }
    Ok(((key, value.trim_matches(BLANKS).into()), behind))
}

/// Returns the value before the closing quote, and the text after the quote.
///
/// Backslashes before other characters are kept: Envoy copies an RFC 2253 subject, including its escapes, into the quotes.
fn unquote(text: &str) -> Result<(Cow<'_, str>, &str), GrammarError> {
    let (mut value, mut rest) = (Cow::Borrowed(""), text);
    let behind = loop {
        let at = memchr2(b'"', b'\\', rest.as_bytes())
            .ok_or(GrammarError("quoted value without end"))?;
        let (plain, special) = rest.split_at(at);
        value += plain;
        if let Some(behind) = special.strip_prefix('"') {
            break behind.trim_start_matches(BLANKS);
        }
        // The escaped character, or the backslash itself if it is not an escape.
        let escapes = special[1..].starts_with(['"', '\\']);
        let length = 1 + usize::from(escapes);
        value += &special[length - 1..length];
        rest = &special[length..];
    };
    if behind.is_empty() || behind.starts_with([',', ';']) {
        Ok((value, behind))
    } else {
        Err(GrammarError("text after a quoted value"))
    }
}

#[cfg(test)]
mod tests;
