//! Times without a valid certificate.
//!
//! API servers reject an expired certificate, and the Pod is not ready meanwhile: changes are admitted without a review, also
//! on all other replicas, which have the same Secret. No number of an event is missing and the process is the same, so no
//! listener notices: each manager is asked for a resync.

use std::time::Duration;

use tokio::time::Instant;

/// Time from a valid certificate until reviews arrive, at most: readiness probe and endpoints follow it.
const RETURN: Duration = Duration::from_secs(30);

/// Tells when a resync is required because reviews did not arrive.
#[derive(Debug, Default)]
pub struct CertificateLapse {
    is_lapsed: bool,
    /// When reviews arrive again after a lapse.
    returned: Option<Instant>,
}

impl CertificateLapse {
    /// Takes whether there is a valid certificate. Returns whether each manager is to be asked for a resync: as soon as there is
    /// one again, and once more when reviews have arrived again, because of the changes in between.
    pub fn observe(&mut self, is_valid: bool, now: Instant) -> bool {
        if !is_valid {
            *self = Self {
                is_lapsed: true,
                returned: None,
            };
            return false;
        }
        if std::mem::take(&mut self.is_lapsed) {
            self.returned = Some(now + RETURN);
            return true;
        }
        self.returned.take_if(|it| *it <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lapse_requires_a_resync_at_its_end_and_when_reviews_arrive_again() {
        let mut lapse = CertificateLapse::default();
        let start = Instant::now();
        let mut observe =
            |is_valid, seconds| lapse.observe(is_valid, start + Duration::from_secs(seconds));
        assert!(!observe(true, 0));
        assert!(!observe(false, 1));
        assert!(!observe(false, 2));
        assert!(observe(true, 3));
        assert!(!observe(true, 32));
        assert!(observe(true, 33));
        assert!(!observe(true, 34));
        // Another one before reviews have arrived again.
        assert!(!observe(false, 40));
        assert!(observe(true, 41));
        assert!(!observe(false, 42));
        assert!(observe(true, 50));
        assert!(!observe(true, 79));
        assert!(observe(true, 80));
    }

    /// As after a restart in the middle of a lapse.
    #[test]
    fn a_process_that_starts_without_a_valid_certificate_requires_a_resync() {
        let mut lapse = CertificateLapse::default();
        assert!(!lapse.observe(false, Instant::now()));
        assert!(lapse.observe(true, Instant::now()));
    }
}
