//! The record as the data of a ConfigMap: some forty bytes a runtime whose signal is due or stands, nothing for others.

use std::collections::BTreeMap;

use super::{Record, RecordError, State};
use crate::sync::known::SourceHistory;

impl Record {
    /// The record as data.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, String> {
        let mut data = BTreeMap::new();
        let Some(known) = &self.known else {
            return data;
        };
        data.insert(INITIALIZED.to_owned(), "true".to_owned());
        known.write(&mut data);
        for (key, state) in LISTS {
            let names: Vec<&str> = self
                .runtimes
                .iter()
                .filter(|(_, it)| **it == state)
                .map(|(name, _)| name.as_str())
                .collect();
            if !names.is_empty() {
                data.insert(key.to_owned(), names.join(" "));
            }
        }
        data
    }

    /// Reads what [`Record::write`] wrote. Data without our keys is the record of one who never started.
    ///
    /// # Errors
    /// [`RecordError`] if a value is not ours.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, RecordError> {
        if !data.contains_key(INITIALIZED) {
            return Ok(Self::default());
        }
        let mut record = Self {
            known: Some(SourceHistory::read(data).map_err(RecordError::SourceHistory)?),
            ..Self::default()
        };
        for (key, state) in LISTS {
            let names = data.get(key).map_or("", String::as_str);
            for name in names.split_ascii_whitespace() {
                record.runtimes.insert(name.to_owned(), state);
            }
        }
        Ok(record)
    }
}

/// Tells a record without sources from no record.
const INITIALIZED: &str = "initialized";

const LISTS: [(&str, State); 3] = [
    ("signal.pending", State::Due),
    ("signal.unacknowledged", State::Stands),
    ("signal.stale", State::StandsOutdated),
];
