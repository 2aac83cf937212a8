//! One watch of Kymas and of their Certificates for both controllers that reconcile Kymas. With thousands of
//! runtimes, each watch takes megabytes of memory.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::bootstrapper::{GROUP, PLURAL, VERSION};
use component_base::readiness::Readiness;
use component_base::watch::watch_if_served;
use futures::channel::mpsc::{self, UnboundedReceiver};
use futures::{Stream, StreamExt as _, stream};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, ResourceExt as _};
use policy::certificates::{CERT_MANAGER_API_VERSION, NAME_SUFFIX, PURPOSE, PURPOSE_LABEL};
use serde_json::Value;
use tokio::sync::watch;

use super::left::LeftWatcher;
use super::merge::{BootstrapperObserver, watch_runtimes};
use super::queue::{ReconcileStarts, pending, reference_of};
use super::{BootstrapperView, KymaView};
use crate::dynamic::objects;
use crate::inventory::PAGE_SIZE;
use crate::sources::served::served;

/// Arguments of [`share`].
#[derive(Clone)]
pub struct KymaOptions {
    /// Client of KCP.
    pub client: Client,
    /// Readiness checks of the process.
    pub readiness: Readiness,
    /// Namespace of Kymas.
    pub namespace: String,
    /// Namespace of the Certificates.
    pub certificate_namespace: String,
    /// The Certificate of the gateway, which belongs to no Kyma.
    pub gateway_certificate: String,
}

/// All Kymas for one controller, and the stream of changed Kymas.
pub struct Kymas {
    known: KnownKymas,
    changed: UnboundedReceiver<ObjectRef<KymaView>>,
    lacking_condition: UnboundedReceiver<String>,
    resumed: UnboundedReceiver<String>,
    left: UnboundedReceiver<LeftWatcher>,
}

/// The known Kymas.
#[derive(Clone)]
pub(crate) struct KnownKymas {
    pub(crate) store: Store<KymaView>,
    namespace: String,
    bootstrappers: Api<BootstrapperView>,
    /// Whether all RuntimeBootstrappers are in the store. The store becomes ready earlier.
    has_bootstrappers: Arc<AtomicBool>,
}

/// Returns all Kymas for the controllers of Certificates and of the watcher on runtimes, and the future of the watch.
/// A controller that reads slowly does not delay the other one.
///
/// The first controller receives each change of a Certificate. The second controller receives a change only when
/// cert-manager has issued the Certificate, because each item of its queue is a connection to a runtime.
pub fn share(options: &KymaOptions) -> (Kymas, Kymas, impl Future<Output = ()> + Send + use<>) {
    let (store, writer) = store();
    let known = KnownKymas {
        store,
        namespace: options.namespace.clone(),
        bootstrappers: Api::namespaced(options.client.clone(), &options.namespace),
        has_bootstrappers: Arc::default(),
    };
    let (to_lacking, lacking_condition) = mpsc::unbounded();
    let (to_resumed, resumed) = mpsc::unbounded();
    let runtimes = options.watch_runtimes(BootstrapperObserver {
        has_all: Arc::clone(&known.has_bootstrappers),
        lacking_condition: to_lacking,
        resumed: to_resumed,
        paused: HashSet::new(),
    });
    let own = known.clone();
    let runtimes = runtimes.filter(move |event| ready(own.is_changed_by(event)));
    let runtimes = reflector(writer, runtimes.map(Ok))
        .touched_objects()
        .filter_map(|it| ready(it.ok()))
        .map(|it| Change {
            kyma: reference_of(&it),
            concerns_watcher: true,
            left: Vec::new(),
        });
    let mut changes = stream::select(runtimes.boxed(), options.watch_certificates().boxed());
    let (to_certificates, certificates) = mpsc::unbounded();
    let (to_watchers, watchers) = mpsc::unbounded();
    let (to_left, left) = mpsc::unbounded();
    let watching = async move {
        while let Some(Change {
            kyma,
            concerns_watcher,
            left,
        }) = changes.next().await
        {
            // The receiver of a controller that has ended is dropped.
            if concerns_watcher {
                drop(to_watchers.unbounded_send(kyma.clone()));
            }
            for left in left {
                drop(to_left.unbounded_send(left));
            }
            drop(to_certificates.unbounded_send(kyma));
        }
    };
    let certificates = Kymas {
        known: known.clone(),
        changed: certificates,
        lacking_condition: mpsc::unbounded().1,
        resumed: mpsc::unbounded().1,
        left: mpsc::unbounded().1,
    };
    let watchers = Kymas {
        known,
        changed: watchers,
        lacking_condition,
        resumed,
        left,
    };
    (certificates, watchers, watching)
}

/// Reason why it is not known whether a runtime is represented.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownOwner {
    #[error("the Kyma has no runtime ID")]
    RuntimeIDMissing,
    #[error("not all RuntimeBootstrappers are listed")]
    NotListed,
    #[error("failed to read from KCP")]
    Kcp(#[from] kube::Error),
}

/// A Kyma that may have to be reconciled.
struct Change {
    kyma: ObjectRef<KymaView>,
    concerns_watcher: bool,
    /// The runtimes from which the watcher has to be removed.
    left: Vec<LeftWatcher>,
}

impl KymaOptions {
    fn watch_runtimes(
        &self,
        of_bootstrappers: BootstrapperObserver,
    ) -> impl Stream<Item = Event<KymaView>> + Send + use<> {
        let checks = ["kymas-watch", "runtimebootstrappers-watch"];
        let checks = checks.map(|it| self.readiness.check(it));
        watch_runtimes(&self.client, &self.namespace, checks, of_bootstrappers)
    }

    /// Returns the Kymas of Certificates that are created, changed or deleted.
    fn watch_certificates(&self) -> impl Stream<Item = Change> + Send + use<> {
        let kind = (CERT_MANAGER_API_VERSION, "Certificate");
        let certificates = objects(&self.client, &self.certificate_namespace, kind);
        let label = format!("{PURPOSE_LABEL}={PURPOSE}");
        let config = Config::default().labels(&label).page_size(PAGE_SIZE);
        let check = self.readiness.check("certificates-watch");
        let (namespace, gateway) = (self.namespace.clone(), self.gateway_certificate.clone());
        let mut revisions = Revisions::default();
        watch_if_served(certificates, config, check).filter_map(move |event| {
            let (object, is_deleted) = match event {
                Event::Apply(it) | Event::InitApply(it) => (it, false),
                Event::Delete(it) => (it, true),
                Event::Init | Event::InitDone => return ready(None),
            };
            let name = object.name_any();
            let is_issued = revisions.observe(&name, (!is_deleted).then_some(&object.data));
            let kyma = name.strip_suffix(NAME_SUFFIX).filter(|_| name != gateway);
            ready(kyma.map(|it| Change {
                kyma: ObjectRef::new(it).within(&namespace),
                concerns_watcher: is_issued,
                left: if is_deleted {
                    Vec::new()
                } else {
                    LeftWatcher::named_by(&object, (&namespace, it))
                },
            }))
        })
    }
}

/// The last revision of each Certificate. cert-manager increments the revision after it has written the Secret.
#[derive(Default)]
struct Revisions(HashMap<String, u64>);

impl Revisions {
    /// Returns whether the Certificate was issued since the last observation. `None` means that it was deleted.
    fn observe(&mut self, name: &str, certificate: Option<&Value>) -> bool {
        let revision = certificate.and_then(|it| it.pointer("/status/revision")?.as_u64());
        let Some(revision) = revision else {
            self.0.remove(name);
            return false;
        };
        self.0.insert(name.to_owned(), revision) != Some(revision)
    }
}

impl Kymas {
    pub(crate) fn known(&self) -> KnownKymas {
        self.known.clone()
    }

    /// Returns the names of changed RuntimeBootstrappers that lack the condition `WatcherInstalled`. Only the
    /// controller of the watcher on runtimes receives names.
    pub(crate) fn lacking_condition(&mut self) -> UnboundedReceiver<String> {
        std::mem::replace(&mut self.lacking_condition, mpsc::unbounded().1)
    }

    /// Returns the runtime IDs of RuntimeBootstrappers that are no longer paused. Only the controller of the watcher on runtimes
    /// receives IDs.
    pub(crate) fn resumed(&mut self) -> UnboundedReceiver<String> {
        std::mem::replace(&mut self.resumed, mpsc::unbounded().1)
    }

    /// Returns the runtimes from which the watcher has to be removed, as their Certificates say. Only the controller of the watcher
    /// on runtimes receives them.
    pub(crate) fn left(&mut self) -> UnboundedReceiver<LeftWatcher> {
        std::mem::replace(&mut self.left, mpsc::unbounded().1)
    }

    /// Returns the queue of Kymas to reconcile: each changed Kyma, all Kymas whenever `of_all` changes, and `others`. The caller has to
    /// report to `starts` each reconcile.
    pub(crate) fn queue<T: Send + Sync + 'static>(
        self,
        of_all: watch::Receiver<T>,
        others: impl Stream<Item = ObjectRef<KymaView>> + Send + 'static,
        starts: ReconcileStarts,
    ) -> impl Stream<Item = Result<ObjectRef<KymaView>, Infallible>> + Send {
        let kymas = stream::select(self.changed, others.boxed());
        let known = (self.known.store, self.known.namespace);
        let pending = pending(known, of_all, kymas).boxed();
        starts.limit(pending).map(Ok)
    }
}

impl KnownKymas {
    /// Returns whether an event has to be stored. For a known Kyma, only changes that a reconcile uses are stored.
    fn is_changed_by(&self, event: &Event<KymaView>) -> bool {
        let Event::Apply(kyma) = event else {
            return true;
        };
        let before = self.store.get(&reference_of(kyma));
        before.is_none_or(|it| !it.is_equivalent(kyma))
    }

    /// Returns whether a Kyma with the name, or a RuntimeBootstrapper without a Kyma, exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        let reference = ObjectRef::new(name).within(&self.namespace);
        self.store.get(&reference).is_some()
    }

    /// Returns whether all RuntimeBootstrappers are in the store.
    pub(crate) fn has_bootstrappers(&self) -> bool {
        self.has_bootstrappers.load(Ordering::Acquire)
    }

    /// Returns whether neither a Kyma nor a RuntimeBootstrapper represents the runtime that a Kyma represented, including a
    /// RuntimeBootstrapper with its name that is not in the store.
    ///
    /// # Errors
    /// It is not known yet: the Kyma has no runtime ID and may represent it, not all RuntimeBootstrappers are listed, or KCP does
    /// not return one.
    pub(crate) async fn is_left(&self, kyma: &str, id: &str) -> Result<bool, UnknownOwner> {
        // Read before the store: if it is set, the store contains all RuntimeBootstrappers.
        let is_complete = self.has_bootstrappers();
        let reference = ObjectRef::new(kyma).within(&self.namespace);
        let named = self.store.get(&reference);
        let lacks_id = named.as_ref().is_some_and(|it| {
            let id = it.runtime_id();
            id.is_none_or(|it| it.as_str().is_empty())
        });
        let all = self.store.state();
        let mut ids = all.iter().filter_map(|it| it.runtime_id());
        if ids.any(|it| it.as_str() == id) {
            return Ok(false);
        }
        if lacks_id {
            return Err(UnknownOwner::RuntimeIDMissing);
        }
        // The store contains a Kyma instead of the RuntimeBootstrapper with its name.
        if is_complete && named.is_none() {
            return Ok(true);
        }
        let found = self.bootstrappers.get_opt(kyma).await?;
        let found = found.as_ref().and_then(|it| it.view.runtime_id());
        if found.is_some_and(|it| it.as_str() == id) {
            return Ok(false);
        }
        let client = self.bootstrappers.clone().into_client();
        if !is_complete && served(&client, GROUP, &[VERSION], PLURAL).await?.is_some() {
            return Err(UnknownOwner::NotListed);
        }
        Ok(true)
    }

    /// Returns whether neither a Kyma nor a RuntimeBootstrapper with the name exists, including a RuntimeBootstrapper
    /// that is not in the store yet.
    ///
    /// # Errors
    /// KCP does not return whether a RuntimeBootstrapper exists.
    pub(crate) async fn is_gone(&self, name: &str) -> kube::Result<bool> {
        // Read before the store: if it is set, the store contains all RuntimeBootstrappers.
        let is_complete = self.has_bootstrappers();
        let is_known = self.has(name);
        if is_known || is_complete {
            return Ok(!is_known);
        }
        // The watch may fail for a long time, or KCP may not serve the kind.
        let found = self.bootstrappers.get_opt(name).await?;
        Ok(found.is_none_or(|it| it.view.runtime_id().is_none()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn certificate_is_issued_with_each_revision_once() {
        let mut revisions = Revisions::default();
        let mut observe = |status: Option<Value>| {
            let certificate = status.map(|it| json!({ "spec": {}, "status": it }));
            revisions.observe("one", certificate.as_ref())
        };
        let revision = |it: u64| Some(json!({ "revision": it }));
        assert!(!observe(Some(json!({}))));
        assert!(observe(revision(1)));
        assert!(!observe(revision(1)));
        assert!(observe(revision(2)));
        assert!(!observe(None));
        // Another Certificate with the same name.
        assert!(observe(revision(1)));
    }
}
