//! The meaning of a docker config does not depend on its notation, and an error is a short constant text.

use policy::image::{Keyring, Reference};

const IMAGES: [&str; 4] = [
    "nginx",
    "ghcr.io/a/b:1",
    "registry.test:5000/c",
    "[::1]:5000/d",
];

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let keyring = match Keyring::parse(data) {
        Ok(keyring) => keyring,
        Err(error) => {
            let text = error.to_string();
            assert!(text.is_ascii() && text.len() < 90, "{text}");
            return;
        }
    };
    let covered = |keyring: &Keyring| {
        let images = IMAGES.iter().filter_map(|it| Reference::parse(it).ok());
        images.map(|it| keyring.covers(&it)).collect::<Vec<_>>()
    };
    if keyring == Keyring::default() {
        assert_eq!(covered(&keyring), [false; IMAGES.len()]);
    }
    let tree = serde_json::from_slice::<serde_json::Value>(data).unwrap_or_default();
    let again = Keyring::parse(format!("{tree:#}").as_bytes());
    assert_eq!(again, Ok(keyring));
}
