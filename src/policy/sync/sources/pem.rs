//! Checks that a text is a list of PEM certificates, without parsing X.509.
//!
//! Text between blocks is allowed, as in RFC 7468. The API server of KCP has validated the certificates. This check
//! prevents the accidental distribution of a private key to all runtimes.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::PemError;

const BEGIN: &str = "-----BEGIN ";
const LABEL: &str = "-----BEGIN CERTIFICATE-----";

/// Checks the text.
pub(super) fn check(text: &str) -> Result<(), PemError> {
    // The API server treats an indented block as text, but a reader of the bundle may treat it as a private key.
    let mut labels = text.lines().filter(|it| it.trim_start().starts_with(BEGIN));
    if let Some(index) = labels.position(|it| it.trim_end() != LABEL) {
        return Err(PemError::Label(index + 1));
    }
    let mut seen = Vec::new();
    for der in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let block = seen.len() + 1;
        let der = der.ok().filter(|der| is_sequence(der));
        let der = der.ok_or(PemError::Damaged(block))?;
        if seen.contains(&der) {
            return Err(PemError::Repeated(block));
        }
        seen.push(der);
    }
    if seen.is_empty() {
        return Err(PemError::Empty);
    }
    Ok(())
}

/// Returns whether the bytes are a DER SEQUENCE of exactly their length.
fn is_sequence(der: &[u8]) -> bool {
    let [0x30, first, rest @ ..] = der else {
        return false;
    };
    if *first < 0x80 {
        return rest.len() == usize::from(*first);
    }
    let digits = usize::from(*first & 0x7f);
    if digits == 0 || digits > 4 || rest.len() < digits {
        return false;
    }
    let (length, body) = rest.split_at(digits);
    let length = length
        .iter()
        .fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    body.len() == length
}
