//! Whether a replica takes a leaf into use.
//!
//! Invariant: a leaf is taken only when whoever calls us trusts it; the leaf in use stays until then. Pure.
//! Deliberately absent: waiting, and saying so (see [`super::present`]).

use jiff::Timestamp;

use super::{Bundle, LiveEntry, Pair, Sighting};

/// What the Secret or the files offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Nothing is known yet.
    Unknown,
    /// There is none.
    Missing,
    /// It cannot be served.
    Unusable,
    /// It is expired or not valid yet.
    Outdated,
    /// What is served already.
    Served,
    /// A leaf that is not served yet.
    New,
}

/// What callers think of the offered leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The webhook entry is not known yet.
    Unknown,
    /// There is no webhook entry, so nobody calls.
    NobodyCalls,
    /// The live `caBundle` verifies the leaf.
    Verifies,
    /// It does not.
    Refuses,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Serve the new leaf.
    Swap,
    /// The offered leaf is served, and that is right.
    Settled,
    /// Go on with what is served, if anything.
    Hold(Hold),
}

/// Why what is offered is not served, or why what is served is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hold {
    Unknown,
    Missing,
    Unusable,
    Outdated,
    EntryUnknown,
    Untrusted,
}

impl Hold {
    /// As a label of metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "not_read_yet",
            Self::Missing => "missing",
            Self::Unusable => "unusable",
            Self::Outdated => "outdated",
            Self::EntryUnknown => "entry_not_read_yet",
            Self::Untrusted => "untrusted",
        }
    }

    /// For a human.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Unknown => "the certificate was not read yet",
            Self::Missing => "certificate is missing",
            Self::Unusable => "the certificate cannot be used",
            Self::Outdated => "the certificate is expired or not valid yet",
            Self::EntryUnknown => "the webhook configuration was not read yet",
            Self::Untrusted => "the live caBundle does not verify the certificate",
        }
    }

    /// Whether this is only a matter of the first moments or of a rotation under way.
    pub(super) fn is_ordinary(self) -> bool {
        matches!(self, Self::Unknown | Self::EntryUnknown | Self::Untrusted)
    }
}

/// What callers think of this leaf.
pub(super) fn trust(pair: &Pair, entry: &Sighting<LiveEntry>, name: &str, now: Timestamp) -> Trust {
    match entry {
        Sighting::Unknown => Trust::Unknown,
        Sighting::Absent => Trust::NobodyCalls,
        Sighting::Present(entry) => {
            if pair.verified_by(&Bundle::read(&entry.ca_bundle), name, now) {
                Trust::Verifies
            } else {
                Trust::Refuses
            }
        }
    }
}

/// Decides.
pub(super) fn gate(offer: Offer, trust: Trust) -> Verdict {
    match (offer, trust) {
        (Offer::Unknown, _) => Verdict::Hold(Hold::Unknown),
        (Offer::Missing, _) => Verdict::Hold(Hold::Missing),
        (Offer::Unusable, _) => Verdict::Hold(Hold::Unusable),
        (Offer::Outdated, _) => Verdict::Hold(Hold::Outdated),
        (Offer::Served | Offer::New, Trust::Refuses) => Verdict::Hold(Hold::Untrusted),
        (Offer::Served, _) => Verdict::Settled,
        (Offer::New, Trust::Unknown) => Verdict::Hold(Hold::EntryUnknown),
        (Offer::New, Trust::NobodyCalls | Trust::Verifies) => Verdict::Swap,
    }
}

#[cfg(test)]
mod tests;
