//! An untrusted kubeconfig results in an address, CAs and one credential, which `Debug` does not show, or in a short error.

use controller::clients::kubeconfig::{Credentials, MAX_BYTES, parse};

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let access = match parse(data) {
        Ok(access) => access,
        Err(error) => {
            let text = format!("{error} {error:?}");
            assert!(text.is_ascii() && text.len() < 200, "{text}");
            return;
        }
    };
    assert!(data.len() <= MAX_BYTES);
    assert!(!access.server.host().is_empty() && access.server.port() > 0);
    assert!(!access.authority.is_empty());
    match &access.credentials {
        Credentials::Token(token) => {
            assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
            let shown = format!("{:?}", access.credentials);
            assert_eq!(shown, "Token(..)");
        }
        Credentials::Certificate { chain, .. } => assert!(!chain.is_empty()),
    }
}
