//! Periods without a valid certificate.
//!
//! API servers reject an expired certificate, and the Pod is not ready during that time. Changes are then admitted without
//! a review on all replicas, because all replicas use the same Secret. A listener cannot detect this: the process is the
//! same, and the sequence numbers of events have no gap. Therefore each manager gets a request for a resync.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum time from a valid certificate until reviews arrive, because the readiness probe and the endpoints have to be updated.
const RETURN: Duration = Duration::from_secs(30);

/// Detects when a resync is required because reviews did not arrive.
#[derive(Debug, Default)]
pub struct CertificateLapse {
    is_lapsed: bool,
    /// When reviews arrive again after a lapse.
    returned: Option<Instant>,
}

impl CertificateLapse {
    /// Updates whether there is a valid certificate. Returns whether each manager must get a request for a resync: when a
    /// valid certificate is available again, and once more when reviews have arrived again, because of the changes in
    /// between.
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
        // A second lapse before reviews have arrived again.
        assert!(!observe(false, 40));
        assert!(observe(true, 41));
        assert!(!observe(false, 42));
        assert!(observe(true, 50));
        assert!(!observe(true, 79));
        assert!(observe(true, 80));
    }

    /// The watcher restarts during a lapse.
    #[test]
    fn a_process_that_starts_without_a_valid_certificate_requires_a_resync() {
        let mut lapse = CertificateLapse::default();
        assert!(!lapse.observe(false, Instant::now()));
        assert!(lapse.observe(true, Instant::now()));
    }
}
