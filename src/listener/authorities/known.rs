//! Clients that were believed under one set of authorities.
//!
//! A gateway writes the same header for every request of a client, and to read it and check the signature in it costs
//! more than all else that is done with an event. Invariants: only a client whose certificate was verified is in here, by
//! the hash of the whole header and of what reading it depends on; its dates are looked at every time; the set of
//! authorities owns it, so that who was believed under another set counts for nothing. Bounded: when it is full it begins
//! anew, at the cost of one verification for each client that still sends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::certificate::ClientCertificate;
use crate::forwarded::Print;

/// As many as there are runtimes by default, with both of their certificates while these are renewed. About two
/// kilobytes each.
const MOST: usize = 20_000;

#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<Print, Arc<ClientCertificate>>>);

impl Known {
    /// The client of a header, if it was believed before and its dates hold `now`, in seconds since 1970.
    pub(super) fn client(&self, print: &Print, now: i64) -> Option<Arc<ClientCertificate>> {
        let client = self.clients().get(print).cloned();
        client.filter(|client| client.dates().contains(&now))
    }

    /// It was verified.
    pub(super) fn add(&self, print: Print, client: Arc<ClientCertificate>) {
        let mut clients = self.clients();
        if clients.len() >= MOST {
            clients.clear();
        }
        clients.insert(print, client);
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Print, Arc<ClientCertificate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
