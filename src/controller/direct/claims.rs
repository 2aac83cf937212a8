//! Which runtime is which cluster, over all runtimes: two kubeconfigs that lead to one cluster are found out.
//!
//! Invariant: a cluster belongs to the runtime that was first accepted on it, for as long as that runtime is known. Each
//! question costs a look-up, however many runtimes there are.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Clusters by the UID of their `kube-system`.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Both>);

/// Both ways.
#[derive(Debug, Default)]
struct Both {
    owners: HashMap<String, String>,
    clusters: HashMap<String, Vec<String>>,
}

impl Claims {
    /// Notes that a runtime was seen on a cluster; gives the other runtime that was there before, if any.
    pub(super) fn claim(&self, cluster: &str, runtime: &str) -> Option<String> {
        let mut both = self.lock();
        match both.owners.get(cluster) {
            Some(owner) if owner != runtime => Some(owner.clone()),
            Some(_) => None,
            None => {
                both.owners.insert(cluster.to_owned(), runtime.to_owned());
                let clusters = both.clusters.entry(runtime.to_owned()).or_default();
                clusters.push(cluster.to_owned());
                None
            }
        }
    }

    /// The runtime is not taken for this cluster after all: whoever it belongs to may come.
    pub(super) fn withdraw(&self, cluster: &str, runtime: &str) {
        self.lock().keep(runtime, |it| it != cluster);
    }

    /// Forgets the clusters of a runtime.
    pub(super) fn release(&self, runtime: &str) {
        self.lock().keep(runtime, |_| false);
    }

    /// Forgets the runtime's clusters but one: it was rebuilt.
    pub(super) fn settle(&self, cluster: &str, runtime: &str) {
        self.lock().keep(runtime, |it| it == cluster);
    }

    fn lock(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Both {
    fn keep(&mut self, runtime: &str, stays: impl Fn(&str) -> bool) {
        let Some(clusters) = self.clusters.get_mut(runtime) else {
            return;
        };
        for gone in clusters.extract_if(.., |it| !stays(it)) {
            self.owners.remove(&gone);
        }
        if clusters.is_empty() {
            self.clusters.remove(runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Claims;

    #[test]
    fn the_first_one_stays_until_it_leaves() {
        let claims = Claims::default();
        assert_eq!(claims.claim("cluster", "a"), None);
        assert_eq!(claims.claim("cluster", "a"), None);
        assert_eq!(claims.claim("cluster", "b").as_deref(), Some("a"));
        assert_eq!(claims.claim("rebuilt", "a"), None);
        claims.settle("rebuilt", "a");
        assert_eq!(claims.claim("cluster", "b"), None);
        claims.release("b");
        assert_eq!(claims.claim("cluster", "c"), None);
    }

    #[test]
    fn who_was_refused_keeps_nobody_out() {
        let claims = Claims::default();
        assert_eq!(claims.claim("own", "a"), None);
        assert_eq!(claims.claim("another", "a"), None);
        claims.withdraw("another", "a");
        claims.withdraw("own", "b");
        assert_eq!(claims.claim("another", "b"), None);
        assert_eq!(claims.claim("own", "b").as_deref(), Some("a"));
    }
}
