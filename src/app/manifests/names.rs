//! Valid names of Kubernetes objects (RFC 1123, as validated by the API server).

const LABEL_LIMIT: usize = 63;
const SUBDOMAIN_LIMIT: usize = 253;

/// Returns whether the text is a valid name of a Namespace.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= LABEL_LIMIT && is_part(text)
}

/// Returns whether the text is a valid name of a Secret or a ConfigMap.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_LIMIT && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    !text.is_empty()
        && text.as_bytes().iter().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
