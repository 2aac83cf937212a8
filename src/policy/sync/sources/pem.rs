//! Checks that a text is a list of PEM certificates, without parsing X.509.
//!
//! Text between blocks is allowed, as in RFC 7468. The API server of KCP has validated the certificates; this check
//! prevents that a private key is distributed to all runtimes by mistake.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::PemError;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END CERTIFICATE-----";
const LABEL: &str = "-----BEGIN CERTIFICATE-----";

/// Checks the text.
pub(super) fn check(text: &str) -> Result<(), PemError> {
    let mut lines = text.lines().map(str::trim_end);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    // An indented block is text to the API server, but a private key to a reader of the bundle.
    while let Some(line) = lines.find(|line| line.trim_start().starts_with(BEGIN)) {
        let block = seen.len() + 1;
        if line != LABEL {
            return Err(PemError::Label(block));
        }
        let mut body = String::new();
        loop {
            match lines.next() {
                Some(END) => break,
                Some(line) => body.push_str(line),
                None => return Err(PemError::Damaged(block)),
            }
        }
        let der = STANDARD
            .decode(&body)
            .ok()
            .filter(|der| is_sequence(der))
            .ok_or(PemError::Damaged(block))?;
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

/// Whether the bytes are a DER SEQUENCE of exactly their length.
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
