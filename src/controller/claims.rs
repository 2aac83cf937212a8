//! Finds two kubeconfigs of the same cluster.
//!
//! Invariant: a cluster belongs to the first runtime that was accepted for it, until that runtime is released. Each
//! operation is a hash look-up, independent of the number of runtimes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clients::RuntimeId;

/// Owners of clusters. A cluster is identified by the UID of its Namespace `kube-system`, a runtime by its runtime ID.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<ClaimIndex>);

/// The claims by cluster and by runtime, which share their names.
#[derive(Debug, Default)]
struct ClaimIndex {
    owners: HashMap<Arc<str>, RuntimeId>,
    clusters: HashMap<RuntimeId, Vec<Arc<str>>>,
}

impl Claims {
    /// Claims a cluster for a runtime. Returns the other runtime that already owns it, if any.
    pub(crate) fn claim(&self, cluster: &str, runtime: &RuntimeId) -> Option<String> {
        let mut index = self.lock();
        match index.owners.get(cluster) {
            Some(owner) if owner != runtime => Some(owner.to_string()),
            Some(_) => None,
            None => {
                let cluster = Arc::<str>::from(cluster);
                let clusters = index.clusters.entry(runtime.clone());
                let clusters = clusters.or_insert_with(|| Vec::with_capacity(1));
                clusters.push(Arc::clone(&cluster));
                index.owners.insert(cluster, runtime.clone());
                None
            }
        }
    }

    /// Removes the claim of a runtime to a cluster that was rejected for that runtime.
    pub(crate) fn withdraw(&self, cluster: &str, runtime: &str) {
        self.lock().retain(runtime, |it| it != cluster);
    }

    /// Removes all claims of a runtime.
    pub(crate) fn release(&self, runtime: &str) {
        self.lock().retain(runtime, |_| false);
    }

    /// Removes all claims of a runtime except the claim to `cluster`, because its cluster was rebuilt.
    pub(crate) fn release_others(&self, cluster: &str, runtime: &str) {
        self.lock().retain(runtime, |it| it == cluster);
    }

    fn lock(&self) -> MutexGuard<'_, ClaimIndex> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimIndex {
    fn retain(&mut self, runtime: &str, is_kept: impl Fn(&str) -> bool) {
        let Some(clusters) = self.clusters.get_mut(runtime) else {
            return;
        };
        for removed in clusters.extract_if(.., |it| !is_kept(it)) {
            self.owners.remove(&removed);
        }
        if clusters.is_empty() {
            self.clusters.remove(runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Claims;
    use crate::clients::RuntimeId;

    fn id(text: &str) -> RuntimeId {
        RuntimeId::new(text)
    }

    #[test]
    fn first_runtime_owns_the_cluster_until_its_release() {
        let claims = Claims::default();
        assert_eq!(claims.claim("cluster", &id("a")), None);
        assert_eq!(claims.claim("cluster", &id("a")), None);
        assert_eq!(claims.claim("cluster", &id("b")).as_deref(), Some("a"));
        assert_eq!(claims.claim("rebuilt", &id("a")), None);
        claims.release_others("rebuilt", "a");
        assert_eq!(claims.claim("cluster", &id("b")), None);
        claims.release("b");
        assert_eq!(claims.claim("cluster", &id("c")), None);
    }

    #[test]
    fn withdrawn_claim_does_not_block_other_runtimes() {
        let claims = Claims::default();
        assert_eq!(claims.claim("own", &id("a")), None);
        assert_eq!(claims.claim("another", &id("a")), None);
        claims.withdraw("another", "a");
        claims.withdraw("own", "b");
        assert_eq!(claims.claim("another", &id("b")), None);
        assert_eq!(claims.claim("own", &id("b")).as_deref(), Some("a"));
    }
}
