//! CAs that stay in the `caBundle` for a day after certificate files brought others.
//!
//! Every replica mounts the files, and kubelets bring a change up to some minutes apart: while the leader has the new CA
//! already, another replica serves a leaf of the old one. Nothing in the files says which CA was there before, so those
//! that the live `caBundle` trusts at the change are carried along. Invariant: no IO and no clock; what a `caBundle` is
//! overwritten with later is not carried.

use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::issue::CARRIED;
use crate::certificate::{Bundle, LiveEntry};

/// How long earlier CAs stay. A kubelet takes minutes; a day also outlasts a node that is in trouble.
const DURATION: Duration = Duration::from_hours(24);

/// The CAs of the files, and those before them. A new leader takes the live `caBundle` for the one before, so a change
/// just before an election is not missed.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    files: Option<Bundle>,
    carried: Bundle,
    until: Timestamp,
}

impl Overlap {
    /// What to publish for the CAs of the files: these first, then at most [`CARRIED`] unexpired ones of the live
    /// `caBundle`, as it was when the files changed last.
    pub(super) fn with_earlier(
        &mut self,
        files: &Bundle,
        live: &LiveEntry,
        now: Timestamp,
    ) -> Bundle {
        if self.files.as_ref() != Some(files) {
            let trusted = Bundle::read(&live.ca_bundle).unexpired(now);
            self.carried = trusted.without(files).newest(CARRIED);
            self.until = now.checked_add(DURATION).unwrap_or(Timestamp::MAX);
            self.files = Some(files.clone());
        }
        if self.until <= now {
            self.carried = Bundle::default();
        }
        let carried = self.carried.unexpired(now);
        Bundle::of(files.certificates().chain(carried.certificates()).cloned())
    }

    /// When earlier CAs have to go.
    pub(super) fn ends(&self) -> Timestamp {
        if self.carried.is_empty() {
            Timestamp::MAX
        } else {
            self.until
        }
    }
}

#[cfg(test)]
mod tests;
