//! Syntax of names and labels of Kubernetes objects (RFC 1123), as validated by the API server.

/// Returns whether a text is an RFC 1123 label, such as the name of a Namespace or a volume.
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Returns whether a text is an RFC 1123 subdomain, such as the name of a Secret or a ConfigMap. Only the whole text is
/// limited, not the parts between the dots.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Returns whether a text is the key of a label: a name, with a subdomain as an optional prefix.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label_name(name),
        None => is_label_name(text),
    }
}

/// Returns whether a text is the value of a label, which may be empty.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_name(text)
}

/// Returns whether a text is the name of a label, without a prefix.
#[must_use]
pub fn is_label_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_inner = |it: &u8| it.is_ascii_alphanumeric() || b"-_.".contains(it);
    let is_edge = |it: Option<&u8>| it.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && bytes.iter().all(is_inner)
        && is_edge(bytes.first())
        && is_edge(bytes.last())
}

fn is_part(text: &str) -> bool {
    let is_inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}
