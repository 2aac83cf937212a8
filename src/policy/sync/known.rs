//! What was ever rolled out, and under which name: so that a deletion can be told from an object that never existed.
//!
//! Nothing is ever forgotten: a source that is deleted stays known, or a runtime that was unreachable at the time would
//! keep its copy for ever. Another name is another source: one that is absent under a name that was never rolled out is
//! not a deletion, so a flag that is changed or mistyped removes nothing.
//!
//! A source that is absent counts as deleted only after a grace period. Its beginning is part of what is remembered, so
//! it ends in time under another leader, too, and does not begin again at each restart.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

use super::SourceKind;
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

/// The moment at which sources are looked at, and how long an absent one is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// Wall-clock time. If it went back, an absence begins anew.
    pub now: Timestamp,
    /// The time between the first sight of an absence and the deletion; zero: there is no grace.
    pub period: Duration,
}

/// What it means that there is no object of a source's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No source of this name was ever rolled out.
    NeverRolledOut,
    /// It was rolled out with this content, and is not taken for deleted before the end of the grace period.
    Pending {
        /// What was rolled out.
        hash: Hash,
        /// The end of the grace period.
        at: Timestamp,
    },
    /// It was rolled out and deleted.
    Deleted,
}

/// What is remembered about a source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    /// The name on KCP under which it was rolled out; `None` if the state ConfigMap does not say it.
    name: Option<String>,
    last: Last,
    missing: Option<Missing>,
}

/// A source that is absent and not deleted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missing {
    /// The first sight of its absence.
    since: Timestamp,
    /// The end of the grace period.
    until: Timestamp,
}

/// What was ever rolled out, source by source. The default knows of nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceHistory([Option<Remembered>; 3]);

impl SourceHistory {
    /// The last thing known about a source, whatever its name was; `None` if it was never rolled out.
    #[must_use]
    pub fn get(&self, kind: SourceKind) -> Option<Last> {
        self.0[kind as usize].as_ref().map(|it| it.last)
    }

    /// What it means that there is no source of this name, after [`SourceHistory::advance`].
    #[must_use]
    pub fn absence(&self, kind: SourceKind, name: Option<&str>) -> Absence {
        let remembered = self.0[kind as usize].as_ref();
        match remembered.filter(|it| it.is_called(name)) {
            None => Absence::NeverRolledOut,
            Some(Remembered {
                last: Last::Content(hash),
                missing: Some(Missing { until, .. }),
                ..
            }) => Absence::Pending {
                hash: *hash,
                at: *until,
            },
            Some(_) => Absence::Deleted,
        }
    }

    /// Hash of the three contents. A source that was deleted counts as one that never existed.
    #[must_use]
    pub fn revision(&self) -> Hash {
        let contents = self
            .0
            .each_ref()
            .map(|it| match it.as_ref().map(|it| it.last) {
                Some(Last::Content(hash)) => hash.to_string(),
                Some(Last::Deleted) | None => String::new(),
            });
        Hash::of_parts(&contents.each_ref().map(String::as_bytes))
    }

    /// When the next grace period ends, after [`SourceHistory::advance`]; `None` while no source is missing.
    #[must_use]
    pub fn next_deletion(&self) -> Option<Timestamp> {
        let all = self.0.iter().flatten();
        all.filter_map(|it| it.missing).map(|it| it.until).min()
    }

    /// Takes note of the sources as they are; gives those whose content is another than before, deleted ones included.
    ///
    /// A source that is invalid or not looked for is as it was before; one that never existed under its name is no
    /// change, and neither is one that is absent while its grace period runs. What is remembered may be another thing
    /// afterwards although no content changed: a new name, or an absence that began or ended.
    pub fn advance(&mut self, sources: &Sources, grace: Grace) -> Vec<SourceKind> {
        let mut changed = Vec::new();
        for kind in SourceKind::ALL {
            let name = sources.names.get(kind);
            let slot = &mut self.0[kind as usize];
            let before = slot.as_ref().map(|it| it.last);
            let now = match (sources.summary(kind), slot.take()) {
                (Summary::Valid(hash), _) => Remembered {
                    name: name.map(str::to_owned),
                    last: Last::Content(hash),
                    missing: None,
                },
                (Summary::Absent, Some(known)) if known.is_called(name) => known.absent(grace),
                (_, Some(known)) => Remembered {
                    missing: None,
                    ..known
                },
                (_, None) => continue,
            };
            if before != Some(now.last) {
                changed.push(kind);
            }
            *slot = Some(now);
        }
        changed
    }

    /// Puts it into the data of a ConfigMap, under the keys `lastSeen.<source>`, `lastSeen.<source>.name` and
    /// `lastSeen.<source>.missing-since` (RFC 3339).
    pub fn write(&self, data: &mut BTreeMap<String, String>) {
        for kind in SourceKind::ALL {
            let Some(Remembered {
                name,
                last,
                missing,
            }) = &self.0[kind as usize]
            else {
                continue;
            };
            data.insert(key(kind), last.to_string());
            data.extend(name.clone().map(|name| (name_key(kind), name)));
            data.extend(missing.map(|it| (missing_key(kind), it.since.to_string())));
        }
    }

    /// Reads what [`SourceHistory::write`] wrote; absent keys mean that the source never existed. An entry without a name is
    /// one of an unknown name: its source is never taken for deleted. A time that cannot be read is none: the grace
    /// period begins anew.
    ///
    /// # Errors
    /// A value is neither a hash nor `deleted`. To go on as if nothing were known would lose deletions.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, KnownError> {
        let mut known = Self::default();
        for kind in SourceKind::ALL {
            let Some(text) = data.get(&key(kind)) else {
                continue;
            };
            let since = data.get(&missing_key(kind));
            known.0[kind as usize] = Some(Remembered {
                name: data.get(&name_key(kind)).cloned(),
                last: text.parse().map_err(|source| KnownError { kind, source })?,
                // The end follows from the grace period, which is not remembered.
                missing: since.and_then(|it| it.parse().ok()).map(|since| Missing {
                    since,
                    until: since,
                }),
            });
        }
        Ok(known)
    }
}

impl Remembered {
    fn is_called(&self, name: Option<&str>) -> bool {
        self.name.is_some() && self.name.as_deref() == name
    }

    /// The same source, of which there is no object now.
    fn absent(self, Grace { now, period }: Grace) -> Self {
        let since = self.missing.map_or(now, |it| it.since.min(now));
        let until = since.checked_add(period).unwrap_or(Timestamp::MAX);
        if self.last == Last::Deleted || until <= now {
            return Self {
                last: Last::Deleted,
                missing: None,
                ..self
            };
        }
        Self {
            missing: Some(Missing { since, until }),
            ..self
        }
    }
}

/// A record that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of `{}` cannot be read", .kind.name())]
pub struct KnownError {
    /// The source.
    pub kind: SourceKind,
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

fn key(kind: SourceKind) -> String {
    format!("lastSeen.{}", kind.name())
}

fn name_key(kind: SourceKind) -> String {
    format!("{}.name", key(kind))
}

fn missing_key(kind: SourceKind) -> String {
    format!("{}.missing-since", key(kind))
}

const DELETED: &str = "deleted";
