//! TLS towards runtimes: one configuration a kubeconfig, kept for the runtimes used last.
//!
//! Invariants: trust comes from the kubeconfig alone; a session is resumed only under the very configuration that made
//! it, so never across runtimes, authorities or identities (rustls keeps tickets per configuration); what is kept is
//! bounded. Resumption saves the server's chain its verification and both sides the signatures, so a rotated
//! kubeconfig begins anew by its new fingerprint. The provider is always named, never the process default.
//!
//! Measured (`tests/memory.rs`): a kept configuration with one authority, a client certificate and the tickets of a
//! P-256 server takes about 6 kB; of a runtime without one nothing stays. A sweep over more runtimes than are kept resumes
//! nothing, so the default is for those that are looked at again at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::kubeconfig::{Access, Credentials};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, RootCertStore};

use super::RuntimeId;
use super::error::AccessError;

/// HTTP/2 as ALPN has it.
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// The configurations of the runtimes used last.
pub(super) struct Configurations {
    provider: Arc<CryptoProvider>,
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_runtime: HashMap<RuntimeId, Entry>,
    uses: u64,
}

struct Entry {
    fingerprint: Box<str>,
    configuration: Arc<ClientConfig>,
    used: u64,
}

impl Configurations {
    /// Keeps at most `capacity` configurations; with 0 nothing is ever resumed.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            capacity,
            kept: Mutex::default(),
        }
    }

    /// The configuration made earlier for this very kubeconfig, or a new one.
    pub(super) fn configuration(
        &self,
        runtime: &RuntimeId,
        fingerprint: &str,
        access: Access,
    ) -> Result<Arc<ClientConfig>, AccessError> {
        if let Some(known) = self.lock().find(runtime, fingerprint) {
            return Ok(known);
        }
        let made = Arc::new(self.make(access)?);
        if self.capacity > 0 {
            let mut kept = self.lock();
            kept.make_room(runtime, self.capacity);
            kept.insert(runtime.clone(), fingerprint, made.clone());
        }
        Ok(made)
    }

    fn make(&self, access: Access) -> Result<ClientConfig, AccessError> {
        let mut roots = RootCertStore::empty();
        for certificate in access.authority {
            roots.add(certificate).map_err(AccessError::Authority)?;
        }
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(AccessError::Provider)?
            .with_root_certificates(roots);
        let mut configuration = match access.credentials {
            Credentials::Token(_) => builder.with_no_client_auth(),
            Credentials::Certificate { chain, key } => builder
                .with_client_auth_cert(chain, key)
                .map_err(AccessError::Identity)?,
        };
        configuration.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
        configuration.resumption = Resumption::in_memory_sessions(TICKETS);
        Ok(configuration)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().by_runtime.len()
    }
}

impl Kept {
    fn find(&mut self, runtime: &RuntimeId, fingerprint: &str) -> Option<Arc<ClientConfig>> {
        self.uses += 1;
        let entry = self.by_runtime.get_mut(runtime)?;
        if *entry.fingerprint != *fingerprint {
            return None;
        }
        entry.used = self.uses;
        Some(entry.configuration.clone())
    }

    /// Drops the one that was not used for longest. A scan: it is hidden by the handshake that follows.
    fn make_room(&mut self, runtime: &RuntimeId, capacity: usize) {
        if self.by_runtime.len() < capacity || self.by_runtime.contains_key(runtime) {
            return;
        }
        let oldest = self.by_runtime.iter().min_by_key(|(_, it)| it.used);
        if let Some(oldest) = oldest.map(|(runtime, _)| runtime.clone()) {
            self.by_runtime.remove(&oldest);
        }
    }

    fn insert(&mut self, runtime: RuntimeId, fingerprint: &str, made: Arc<ClientConfig>) {
        let entry = Entry {
            fingerprint: fingerprint.into(),
            configuration: made,
            used: self.uses,
        };
        self.by_runtime.insert(runtime, entry);
    }
}

/// What rustls takes for one server; a configuration never sees a second.
const TICKETS: usize = 8;
