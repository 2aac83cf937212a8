//! What was ever rolled out, and under which name: so that a deletion can be told from an object that never existed.
//!
//! Nothing is ever forgotten: a source that is deleted stays known, or a runtime that was unreachable at the time would
//! keep its copy for ever. Another name is another source: one that is absent under a name that was never rolled out is
//! not a deletion, so a flag that is changed or mistyped removes nothing.
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

/// What is remembered about a source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    /// The name on KCP under which it was rolled out; `None` if the state ConfigMap does not say it.
    name: Option<String>,
    last: Last,
}

/// What was ever rolled out, source by source. The default knows of nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known([Option<Remembered>; 3]);

impl Known {
    /// The last thing known about a source, whatever its name was; `None` if it was never rolled out.
    #[must_use]
    pub fn get(&self, kind: Kind) -> Option<Last> {
        self.0[kind as usize].as_ref().map(|it| it.last)
    }

    /// Whether a source of this name was rolled out.
    #[must_use]
    pub fn was_rolled_out(&self, kind: Kind, name: Option<&str>) -> bool {
        self.0[kind as usize]
            .as_ref()
            .is_some_and(|it| it.name.is_some() && it.name.as_deref() == name)
    }

    /// Takes note of the sources as they are; gives those whose content is another than before, deleted ones included.
    ///
    /// A source that is invalid or not looked for is as it was before; one that never existed under its name is no
    /// change. What is remembered may be another thing afterwards although no content changed: a new name.
    pub fn advance(&mut self, sources: &Sources) -> Vec<Kind> {
        let mut changed = Vec::new();
        for kind in Kind::ALL {
            let name = sources.names.get(kind);
            let last = match sources.summary(kind) {
                Summary::Valid(hash) => Last::Content(hash),
                Summary::Absent if self.was_rolled_out(kind, name) => Last::Deleted,
                Summary::Absent | Summary::Invalid | Summary::Unmanaged => continue,
            };
            if self.get(kind) != Some(last) {
                changed.push(kind);
            }
            self.0[kind as usize] = Some(Remembered {
                name: name.map(str::to_owned),
                last,
            });
        }
        changed
    }

    /// Puts it into the data of a ConfigMap, under the keys `known.<source>` and `known.<source>.name`.
    pub fn write(&self, data: &mut BTreeMap<String, String>) {
        for kind in Kind::ALL {
            if let Some(Remembered { name, last }) = &self.0[kind as usize] {
                data.insert(key(kind), last.to_string());
                data.extend(name.clone().map(|name| (name_key(kind), name)));
            }
        }
    }

    /// Reads what [`Known::write`] wrote; absent keys mean that the source never existed. An entry without a name is
    /// one of an unknown name: its source is never taken for deleted.
    ///
    /// # Errors
    /// A value is neither a hash nor `deleted`. To go on as if nothing were known would lose deletions.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, KnownError> {
        let mut known = Self::default();
        for kind in Kind::ALL {
            if let Some(text) = data.get(&key(kind)) {
                let last = text.parse().map_err(|source| KnownError { kind, source })?;
                let name = data.get(&name_key(kind)).cloned();
                known.0[kind as usize] = Some(Remembered { name, last });
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

fn name_key(kind: Kind) -> String {
    format!("{}.name", key(kind))
}

const DELETED: &str = "deleted";
