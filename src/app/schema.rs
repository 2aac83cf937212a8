//! Subcommand `schema`: prints the JSON Schema of the configuration document of the webhook, for editors.
//!
//! The schema is derived from the types that parse the document (`api::config`). It is embedded as a file, which a test
//! compares with the types, so that the binary does not contain the code that derives it.

use std::process::ExitCode;

use crate::edge;

/// The schema as text.
const SCHEMA: &str = include_str!("../api/config/schema.json");

/// Prints the schema.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run() -> std::io::Result<ExitCode> {
    edge::write_out(SCHEMA)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use api::config::Document;
    use policy::admission::{Configuration, Settings};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::SCHEMA;

    fn is_valid(document: &Value) -> bool {
        let settings = Settings {
            landscape: None,
            pull_secret: "credentials".to_owned(),
        };
        let document = Document::parse(&document.to_string()).unwrap();
        Configuration::new(&document, &settings).is_ok()
    }

    /// An unknown feature makes a document invalid, so the schema lists the features and accepts no other text.
    #[rstest]
    #[case::available("availableFeatures", "items")]
    #[case::namespace("namespaceFeatures", "additionalProperties/items")]
    #[case::opt_out("optOut", "items")]
    fn the_schema_lists_the_features_that_the_webhook_accepts(
        #[case] list: &str,
        #[case] place: &str,
    ) {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let listed = schema.pointer(&format!("/properties/{list}/{place}/oneOf"));
        let listed = listed.and_then(Value::as_array).unwrap().iter();
        let listed: Vec<&str> = listed.filter_map(|it| it["const"].as_str()).collect();
        let mut keys = vec![api::ALL_KEY, "rt-cfg.kyma-project.io/unknown"];
        keys.extend(api::Feature::ALL.map(api::Feature::key));
        for key in keys {
            let value = match list {
                "namespaceFeatures" => json!({"shop": [key]}),
                _ => json!([key]),
            };
            // All features are available, so that a namespace may have any of them.
            let mut document = json!({"overrides": {}, "availableFeatures": api::Feature::ALL.map(api::Feature::key)});
            document[list] = value;
            assert_eq!(
                is_valid(&document),
                listed.contains(&key),
                "{key} in {list}"
            );
        }
    }
}
