//! Certificates that were verified under one set of authorities.
//!
//! A runtime sends the same certificate with every event, and a signature costs more to check than all else that is done
//! with an event. Invariant: only what was verified is in here, by the hash of its bytes and with its own dates; the set
//! of authorities owns it, so that what was verified under another set counts for nothing. Bounded: when it is full it
//! begins anew, at the cost of one verification for each certificate that is still in use.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::certificate::ClientCertificate;

/// As many as there are runtimes by default, with both of their certificates while these are renewed. 64 bytes each.
const MOST: usize = 20_000;

type Print = [u8; 32];

#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<Print, RangeInclusive<i64>>>);

impl Known {
    /// Whether it was verified before and its dates hold `now`, in seconds since 1970.
    pub(super) fn holds(&self, client: &ClientCertificate, now: i64) -> bool {
        let dates = self.certificates().get(&print(client)).cloned();
        dates.is_some_and(|dates| dates.contains(&now))
    }

    /// It was verified.
    pub(super) fn add(&self, client: &ClientCertificate) {
        let mut certificates = self.certificates();
        if certificates.len() >= MOST {
            certificates.clear();
        }
        certificates.insert(print(client), client.dates());
    }

    fn certificates(&self) -> MutexGuard<'_, HashMap<Print, RangeInclusive<i64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn print(client: &ClientCertificate) -> Print {
    Sha256::digest(client.der()).into()
}
