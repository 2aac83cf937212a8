//! What was ever rolled out: so that a deletion can be told from an object that never existed.
//!
//! Nothing is ever forgotten: a source that is deleted stays known, or a runtime that was unreachable at the time would
//! keep its copy for ever.
//! Source: product.md §2 "Watches on KCP", reference kim-keb §9 row 41.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::Kind;
use super::content::{Hash, NoHash};
use super::sources::{Sources, Summary};

/// The last thing known about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// It had this content.
    Content(Hash),
    /// It was there, and then it was deleted.
    Deleted,
}

/// What was ever rolled out, source by source. The default knows of nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known([Option<Last>; 3]);

impl Known {
    /// The last thing known about a source; `None` if it never existed.
    #[must_use]
    pub fn get(&self, kind: Kind) -> Option<Last> {
        self.0[kind as usize]
    }

    /// Takes note of the sources as they are; gives those whose content is another than before, deleted ones included.
    ///
    /// A source that is invalid or not looked for is as it was before; one that never existed is no change.
    pub fn advance(&mut self, sources: &Sources) -> Vec<Kind> {
        let mut changed = Vec::new();
        for kind in Kind::ALL {
            let before = self.get(kind);
            let now = match sources.summary(kind) {
                Summary::Valid(hash) => Some(Last::Content(hash)),
                Summary::Absent => before.map(|_| Last::Deleted),
                Summary::Invalid | Summary::Unmanaged => before,
            };
            if now != before {
                self.0[kind as usize] = now;
                changed.push(kind);
            }
        }
        changed
    }

    /// Puts it into the data of a ConfigMap, under the keys `known.<source>`.
    pub fn write(&self, data: &mut BTreeMap<String, String>) {
        for kind in Kind::ALL {
            if let Some(last) = self.get(kind) {
                data.insert(key(kind), last.to_string());
            }
        }
    }

    /// Reads what [`Known::write`] wrote; absent keys mean that the source never existed.
    ///
    /// # Errors
    /// A value is neither a hash nor `deleted`. To go on as if nothing were known would lose deletions.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, KnownError> {
        let mut known = Self::default();
        for kind in Kind::ALL {
            if let Some(text) = data.get(&key(kind)) {
                let last = text.parse().map_err(|source| KnownError { kind, source })?;
                known.0[kind as usize] = Some(last);
            }
        }
        Ok(known)
    }
}

/// A record that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of `{}` cannot be read", .kind.name())]
pub struct KnownError {
    /// The source.
    pub kind: Kind,
    /// Why.
    #[source]
    pub source: NoHash,
}

impl fmt::Display for Last {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(hash) => hash.fmt(formatter),
            Self::Deleted => formatter.write_str(DELETED),
        }
    }
}

impl FromStr for Last {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        if text == DELETED {
            return Ok(Self::Deleted);
        }
        text.parse().map(Self::Content)
    }
}

fn key(kind: Kind) -> String {
    format!("known.{}", kind.name())
}

const DELETED: &str = "deleted";
