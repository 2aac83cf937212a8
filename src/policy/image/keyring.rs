//! The images for which a docker config has credentials, with the rules of the kubelet.
//!
//! Invariant: no credential exists after [`Keyring::parse`], and no error contains text of the document. The keys of
//! `auths` are stored as patterns, and only keys that an image can match.
//!
//! Deliberately absent: the order of several matching entries (the kubelet tries all of them), credential helpers and
//! the old `.dockercfg` format. Percent-escapes in a key are not decoded: such a key matches no image.
//!
//! Source: kubernetes `pkg/credentialprovider` (`keyring.go`, `config.go`), and Go `net/url`, `net` and `path/filepath`.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::{Map, Value};

use super::Reference;

/// The registries for which a pull Secret has credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    patterns: Vec<Pattern>,
}

impl Keyring {
    /// Reads the value of `.dockerconfigjson` of a `kubernetes.io/dockerconfigjson` Secret.
    ///
    /// A key of `auths` that is not a registry address is ignored, as in the kubelet.
    ///
    /// # Errors
    /// The kubelet would fail every pull of a Pod that names this Secret, or the document has no `auths`.
    pub fn parse(document: &[u8]) -> Result<Self, KeyringError> {
        let document: Value =
            serde_json::from_slice(document).map_err(|error| KeyringError::NotJson {
                line: error.line(),
                column: error.column(),
            })?;
        let document = document.as_object().ok_or(KeyringError::NotAnObject)?;
        let mut patterns = Vec::new();
        let mut found = false;
        for auths in members(document, "auths") {
            let auths = auths.as_object().ok_or(KeyringError::AuthsNotAnObject)?;
            auths.values().try_for_each(check_entry)?;
            patterns.extend(auths.keys().filter_map(|key| Pattern::parse(key)));
            found = true;
        }
        if !found {
            return Err(KeyringError::NoAuths);
        }
        patterns.sort_unstable();
        patterns.dedup();
        Ok(Self { patterns })
    }

    /// Returns whether the kubelet would use a credential of this keyring for the image.
    #[must_use]
    pub fn covers(&self, image: &Reference<'_>) -> bool {
        let hub = is_hub(image.domain());
        self.patterns
            .iter()
            .any(|pattern| (hub && pattern.is_default_registry()) || pattern.matches(image))
    }

    /// Returns a regular expression in the syntax of RE2 for the covered images; `None` if no image is covered. It
    /// matches `registry/repository`, with the normalized registry and path.
    #[must_use]
    pub(crate) fn pattern(&self) -> Option<String> {
        let patterns = self.patterns.iter().map(Pattern::expression);
        let patterns: Vec<String> = patterns.collect();
        (!patterns.is_empty()).then(|| format!("^(?:{})", patterns.join("|")))
    }
}

/// Reason why a document is not a docker config. It contains no text of the document, only a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// The document is not JSON, or contains more than one value.
    #[error("not JSON (line {line}, column {column})")]
    NotJson {
        /// Line, counted from 1; 0 if the document is empty.
        line: usize,
        /// Column, counted from 1; 0 if the document is empty.
        column: usize,
    },
    /// The document is JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// `auths` is missing or null.
    #[error("auths: missing")]
    NoAuths,
    /// `auths` is of another type.
    #[error("auths: expected an object")]
    AuthsNotAnObject,
    /// A value in `auths` is of another type.
    #[error("auths: entry: expected an object")]
    EntryNotAnObject,
    /// A field of an entry is not a string.
    #[error("auths: entry: {field}: expected a string")]
    FieldNotText {
        /// Documented name of the field, independent of the case in the document.
        field: &'static str,
    },
    /// The `auth` of an entry cannot be decoded to a user and a password.
    #[error("auths: entry: auth: expected base64 of user:password")]
    AuthNotDecodable,
}

impl KeyringError {
    /// Returns whether the kubelet fails every pull of a Pod that names a Secret with this document.
    #[must_use]
    pub fn fails_pulls(&self) -> bool {
        *self != Self::NoAuths
    }
}

/// One key of `auths`: the registries to which its credentials may be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    /// Host with optional port; each label of the host may contain `*`.
    host: String,
    /// Empty, or a text prefix of `/repository`.
    path: String,
}

impl Pattern {
    /// Parses a key. Returns `None` if the key is not an address, or no image can have the address. This also keeps a
    /// password in such a key out of memory and logs.
    fn parse(key: &str) -> Option<Self> {
        let address = ["https://", "http://"]
            .iter()
            .find_map(|scheme| key.strip_prefix(scheme))
            .unwrap_or(key);
        let address = address.split(['#', '?']).next()?;
        let (authority, path) = address.split_at(address.find('/').unwrap_or(address.len()));
        let host = authority.rsplit('@').next()?;
        // `/v1/` and `/v2/` are prefixes of the registry protocol, not of a repository. Only one prefix is removed.
        let path = match path.get(..4) {
            Some("/v1/" | "/v2/") => path.get(3..)?,
            _ => path,
        };
        let path = if path == "/" { "" } else { path };
        let pattern = Self {
            host: host.to_owned(),
            path: path.to_owned(),
        };
        (is_host_pattern(host) && path.bytes().all(is_path_byte)).then_some(pattern)
    }

    fn matches(&self, image: &Reference<'_>) -> bool {
        let (wanted, wanted_port) = split_port(&self.host);
        let (host, port) = split_port(image.domain());
        wanted_port == port
            && labels_match(wanted, host)
            && self
                .path
                .strip_prefix('/')
                .is_none_or(|prefix| image.full_path().starts_with(prefix))
    }

    fn expression(&self) -> String {
        if self.is_default_registry() {
            return r"docker\.io/|[^.:/]+/".to_owned();
        }
        let literal = |text: &str| {
            text.replace('.', r"\.")
                .replace('[', r"\[")
                .replace(']', r"\]")
        };
        // An empty port counts as no port.
        let host = literal(self.host.trim_end_matches(':')).replace('*', "[^.:/]*");
        let path = self.path.strip_prefix('/').unwrap_or_default();
        format!("{host}/{}", literal(path))
    }

    /// Returns whether the key is the default registry, written as `https://index.docker.io/v1/`. It means Docker Hub
    /// with all its names.
    fn is_default_registry(&self) -> bool {
        self.host == "index.docker.io" && self.path.is_empty()
    }
}

/// Returns whether the kubelet treats a registry as Docker Hub, which includes registries without a dot such as `localhost`.
fn is_hub(domain: &str) -> bool {
    domain == "docker.io" || !domain.contains(['.', ':'])
}

fn is_host_pattern(host: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte);
    if let Some(bracketed) = host.strip_prefix('[') {
        // Without a port the kubelet parses the brackets as a character class of a glob, which no address matches.
        return bracketed.split_once("]:").is_some_and(|(address, port)| {
            address
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
                && port.bytes().all(|byte| byte.is_ascii_digit())
        });
    }
    let (name, port) = split_port(host);
    !name.is_empty() && name.bytes().all(known) && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a byte is valid in the path of an image. A prefix with another byte matches no image.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/._-".contains(&byte)
}

/// Returns the host without brackets, and the port. The port is empty if the host contains none.
fn split_port(host: &str) -> (&str, &str) {
    if let Some((address, port)) = host
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]:"))
    {
        return (address, port);
    }
    match host.split_once(':') {
        Some((name, port)) if !host.starts_with('[') => (name, port),
        _ => (host, ""),
    }
}

/// Returns whether the labels of a host match a pattern. A wildcard matches characters of one label, never a dot.
fn labels_match(pattern: &str, host: &str) -> bool {
    let (patterns, labels) = (pattern.split('.'), host.split('.'));
    patterns.clone().count() == labels.clone().count()
        && patterns
            .zip(labels)
            .all(|(pattern, label)| glob_matches(pattern, label))
}

/// Returns whether a label matches a pattern. `*` is the only wildcard in the host of a URL.
fn glob_matches(pattern: &str, label: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == label;
    };
    let Some(mut rest) = label.strip_prefix(head) else {
        return false;
    };
    let mut parts = tail.split('*');
    let last = parts.next_back().unwrap_or_default();
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn check_entry(entry: &Value) -> Result<(), KeyringError> {
    if entry.is_null() {
        return Ok(());
    }
    let entry = entry.as_object().ok_or(KeyringError::EntryNotAnObject)?;
    for field in ["username", "password", "email", "auth"] {
        for value in members(entry, field) {
            let text = value.as_str().ok_or(KeyringError::FieldNotText { field })?;
            if field == "auth" && !text.is_empty() && !is_user_and_password(text) {
                return Err(KeyringError::AuthNotDecodable);
            }
        }
    }
    Ok(())
}

/// Returns the members with a name. Go's decoder ignores the case of names, and treats null as absent.
fn members<'m>(object: &'m Map<String, Value>, name: &str) -> impl Iterator<Item = &'m Value> {
    object
        .iter()
        .filter(move |(key, value)| key.eq_ignore_ascii_case(name) && !value.is_null())
        .map(|(_, value)| value)
}

fn is_user_and_password(auth: &str) -> bool {
    // Go's decoder ignores line breaks, which `base64` without `-w0` produces.
    let auth: String = auth
        .chars()
        .filter(|letter| !matches!(letter, '\r' | '\n'))
        .collect();
    AUTH.decode(auth)
        .is_ok_and(|decoded| decoded.contains(&b':'))
}

/// Base64 decoder that is as lenient as the kubelet: padding is optional, and trailing bits in the last character are ignored.
const AUTH: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
