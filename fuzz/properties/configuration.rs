//! The meaning of a configuration document does not depend on its notation, and the description of an error has a limited size.

use api::config::Document;
use policy::admission::{Configuration, Settings};

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            assert!(error.line() <= Some(text.lines().count() + 1), "{error}");
            return;
        }
    };
    // A parsed tree keeps one of two equal keys, and has another order of keys.
    if document.duplicate_keys.is_empty()
        && let Ok(tree) = serde_json::from_str::<serde_json::Value>(text)
        && let Ok(mut again) = Document::parse(&format!("{tree:#}"))
    {
        again.unknown_keys.clone_from(&document.unknown_keys);
        assert_eq!(again, document);
    }
    let settings = Settings {
        landscape: None,
        pull_secret: "credentials".to_owned(),
    };
    let Ok(configuration) = Configuration::new(&document, &settings) else {
        return;
    };
    let bundle = document.cluster_trust_bundle.is_some();
    assert_eq!(configuration.trust_bundle().is_some(), bundle);
    let name = document.image_pull_secret.name;
    let name = name.as_ref().unwrap_or(&settings.pull_secret);
    assert_eq!(&configuration.pull_secret().name, name);
}
