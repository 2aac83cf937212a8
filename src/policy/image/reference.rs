//! An image reference, parsed in place with the grammar of the distribution project.
//!
//! Invariant: `written_domain` + `/` + `path` + `suffix` is the text, byte for byte. Accessors return the values that
//! the grammar implies (`docker.io`, `library/`), which are never written to the text. The parser is a hand-written
//! scanner with one pass and without allocations, since it runs for every container of every admission review.
//!
//! Deliberately absent: the implied tag `latest`, references by digest alone, and setters.
//!
//! Source: distribution/reference 0.6 (`ParseNormalizedNamed`) and go-digest 1.0 (`Validate`).

use std::borrow::Cow;

/// An image reference as the kubelet parses it, borrowed from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference<'a> {
    written_domain: Option<&'a str>,
    path: &'a str,
    suffix: &'a str,
}

impl<'a> Reference<'a> {
    /// Parses an image reference.
    ///
    /// # Errors
    /// The text does not match the grammar; the kubelet reports `InvalidImageName` for the same text.
    pub fn parse(text: &'a str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if is_lower_hex(text, 64) {
            return Err(ReferenceError::Identifier);
        }
        let (written_domain, remote) = split_domain(text);
        let name_ends = remote.bytes().position(|byte| matches!(byte, b':' | b'@'));
        let (path, suffix) = remote.split_at(name_ends.unwrap_or(remote.len()));
        let reference = Self {
            written_domain,
            path,
            suffix,
        };
        reference.check_name()?;
        check_suffix(suffix)?;
        Ok(reference)
    }

    /// Returns the written registry, with its port; `None` if the grammar implies Docker Hub.
    #[must_use]
    pub fn written_domain(&self) -> Option<&'a str> {
        self.written_domain
    }

    /// Returns the normalized registry: `docker.io` if it is implied or written as `index.docker.io`.
    #[must_use]
    pub fn domain(&self) -> &'a str {
        match self.written_domain {
            None | Some(LEGACY_HUB) => HUB,
            Some(written) => written,
        }
    }

    /// Returns the written repository, without the registry.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// Returns the normalized repository: with the prefix `library/` for an official image of Docker Hub.
    #[must_use]
    pub fn full_path(&self) -> Cow<'a, str> {
        match self.implied_namespace() {
            "" => Cow::Borrowed(self.path),
            namespace => Cow::Owned([namespace, self.path].concat()),
        }
    }

    /// Returns the tag without its colon.
    #[must_use]
    pub fn tag(&self) -> Option<&'a str> {
        self.suffix.strip_prefix(':')?.split('@').next()
    }

    /// Returns the digest with its algorithm, without the `@`.
    #[must_use]
    pub fn digest(&self) -> Option<&'a str> {
        self.suffix.split_once('@').map(|(_, digest)| digest)
    }

    /// Returns the unchanged text after the name: `:tag`, `@digest`, both or nothing.
    #[must_use]
    pub fn suffix(&self) -> &'a str {
        self.suffix
    }

    fn implied_namespace(&self) -> &'static str {
        match self.domain() {
            HUB if !self.path.contains('/') => OFFICIAL,
            _ => "",
        }
    }

    fn check_name(&self) -> Result<(), ReferenceError> {
        let mut length = self.implied_namespace().len() + self.path.len();
        if let Some(domain) = self.written_domain.filter(|domain| !is_domain(domain)) {
            // By the grammar `my_registry.corp/app` has no host, but as a whole it is a valid repository: the kubelet
            // accepts it, the runtime pulls from that host, and the limit applies to the whole text.
            if !is_path(domain) {
                return Err(ReferenceError::Domain);
            }
            length += domain.len() + 1;
        }
        match is_path(self.path) {
            true if length > LONGEST_REPOSITORY => Err(ReferenceError::TooLong),
            true => Ok(()),
            false if self.path.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Err(ReferenceError::UppercasePath)
            }
            false => Err(ReferenceError::Path),
        }
    }
}

/// Reason why a text is not an image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReferenceError {
    /// The text is empty.
    #[error("the image is empty")]
    Empty,
    /// 64 hexadecimal digits alone are an image ID, which cannot be requested from a registry.
    #[error("64 hexadecimal digits are an image id, not a repository")]
    Identifier,
    /// The first component can only be a registry, but is not a host with an optional port.
    #[error("the registry is not a host name or address with an optional port")]
    Domain,
    /// The repository contains an upper-case letter.
    #[error("the repository has an upper-case letter")]
    UppercasePath,
    /// The repository is empty, or contains a character or a sequence of separators that is not allowed.
    #[error("the repository is not made of lower-case letters and digits with single separators")]
    Path,
    /// The repository, including an implied `library/`, is longer than 255 bytes.
    #[error("the repository is longer than {LONGEST_REPOSITORY} bytes")]
    TooLong,
    /// The tag is empty, longer than 128 bytes, or contains a character that is not allowed.
    #[error("the tag is not 1 to {LONGEST_TAG} letters, digits, '_', '.' and '-'")]
    Tag,
    /// The digest is not an algorithm and a hexadecimal value of the algorithm's length.
    #[error("the digest is not an algorithm and a lower-case hexadecimal value of its length")]
    Digest,
    /// The digest is well formed, but its algorithm is not one of SHA-256, SHA-384, SHA-512.
    #[error("the digest's algorithm is not supported")]
    DigestAlgorithm,
}

/// Splits the registry from a text. The first component is a registry only if it cannot be a namespace of Docker Hub.
fn split_domain(text: &str) -> (Option<&str>, &str) {
    match text.split_once('/') {
        Some((first, remote)) if looks_like_domain(first) => (Some(first), remote),
        _ => (None, text),
    }
}

fn looks_like_domain(first: &str) -> bool {
    first == "localhost"
        || first
            .bytes()
            .any(|byte| matches!(byte, b'.' | b':') || byte.is_ascii_uppercase())
}

/// State of a scan. A name may end only after a word.
#[derive(Clone, Copy, PartialEq)]
enum Scan {
    Start,
    Word,
    Underscore,
    Dashes,
    Separator,
}

fn is_path(path: &str) -> bool {
    let mut scan = Scan::Start;
    for byte in path.bytes() {
        scan = match (scan, byte) {
            (_, b'a'..=b'z' | b'0'..=b'9') => Scan::Word,
            (Scan::Word, b'/') => Scan::Start,
            (Scan::Word, b'_') => Scan::Underscore,
            (Scan::Word | Scan::Dashes, b'-') => Scan::Dashes,
            (Scan::Word, b'.') | (Scan::Underscore, b'_') => Scan::Separator,
            _ => return false,
        };
    }
    scan == Scan::Word
}

fn is_domain(domain: &str) -> bool {
    if let Some(bracketed) = domain.strip_prefix('[') {
        // The grammar allows any mix of digits and colons, and no resolver is called here.
        return bracketed.split_once(']').is_some_and(|(address, port)| {
            !address.is_empty()
                && address.split(':').all(is_hex)
                && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        });
    }
    match domain.split_once(':') {
        Some((host, port)) => is_host(host) && is_port(port),
        None => is_host(domain),
    }
}

fn is_host(host: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    host.split('.').all(|label| {
        !label.is_empty()
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks a suffix, which is empty or starts with `:` or `@`.
fn check_suffix(suffix: &str) -> Result<(), ReferenceError> {
    let (tag, digest) = match suffix.split_once('@') {
        Some((tag, digest)) => (tag, Some(digest)),
        None => (suffix, None),
    };
    if tag.strip_prefix(':').is_some_and(|tag| !is_tag(tag)) {
        return Err(ReferenceError::Tag);
    }
    digest.map_or(Ok(()), check_digest)
}

fn is_tag(tag: &str) -> bool {
    tag.len() <= LONGEST_TAG
        && tag.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && tag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

fn check_digest(digest: &str) -> Result<(), ReferenceError> {
    let (algorithm, value) = digest.split_once(':').ok_or(ReferenceError::Digest)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ if is_algorithm(algorithm) && is_hex(value) && value.len() >= 32 => {
            return Err(ReferenceError::DigestAlgorithm);
        }
        _ => return Err(ReferenceError::Digest),
    };
    if is_lower_hex(value, length) {
        Ok(())
    } else {
        Err(ReferenceError::Digest)
    }
}

fn is_algorithm(algorithm: &str) -> bool {
    algorithm.split(['-', '_', '+', '.']).all(|part| {
        part.starts_with(|first: char| first.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn is_hex(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_lower_hex(value: &str, length: usize) -> bool {
    value.len() == length && is_hex(value) && !value.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Returns a regular expression in the syntax of RE2 for the valid references. It does not check the length of the
/// repository, and does not exclude image IDs.
pub(crate) fn pattern() -> String {
    let part = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*";
    let label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
    let host = format!(r"(?:{label}(?:\.{label})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?");
    let tag = r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}";
    let digest = "(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})";
    format!("^(?:(?:{host}|{part})/)?{part}(?:/{part})*(?::{tag})?(?:@{digest})?$")
}

const HUB: &str = "docker.io";
const LEGACY_HUB: &str = "index.docker.io";
/// Namespace of the repositories of Docker Hub that are written without one.
pub(crate) const OFFICIAL: &str = "library/";
/// Maximum size of a repository without its registry, in bytes (`RepositoryNameTotalLengthMax`).
const LONGEST_REPOSITORY: usize = 255;
const LONGEST_TAG: usize = 128;
