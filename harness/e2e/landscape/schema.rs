//! The published JSON schema of scenario files, for editors and for whoever writes a landscape elsewhere.
//!
//! Invariant: it is made from the model, and a test compares `scenarios/schema.json` with it.

use schemars::generate::SchemaSettings;

use super::Landscape;

/// The schema, as `scenarios/schema.json` has it.
#[must_use]
pub fn schema() -> String {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Landscape>();
    format!("{:#}\n", schema.as_value())
}
