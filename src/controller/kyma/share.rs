//! One watch of Kymas and of their Certificates for both controllers that reconcile Kymas: with thousands of runtimes, each watch
//! takes megabytes of memory.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component_base::readiness::Readiness;
use component_base::watch::watch_with_backoff;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::{Stream, StreamExt as _, stream};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, ResourceExt as _};
use policy::certificates::{CERT_MANAGER_API_VERSION, NAME_SUFFIX, PURPOSE, PURPOSE_LABEL};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{BootstrapperView, KymaView, watch_runtimes};
use crate::dynamic::objects;
use crate::inventory::PAGE_SIZE;

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
    /// The Certificate of the gateway, which is that of no Kyma.
    pub gateway_certificate: String,
}

/// All Kymas for one controller, and those that change.
pub struct Kymas {
    known: KnownKymas,
    changed: UnboundedReceiver<ObjectRef<KymaView>>,
    lacking_condition: UnboundedReceiver<String>,
}

/// What is known of Kymas.
#[derive(Clone)]
pub(crate) struct KnownKymas {
    pub(crate) store: Store<KymaView>,
    namespace: String,
    bootstrappers: Api<BootstrapperView>,
    /// Whether all RuntimeBootstrappers are in the store, which is ready before that.
    has_bootstrappers: Arc<AtomicBool>,
}

/// All Kymas for the controllers of Certificates and of the watcher on runtimes, and the future that watches. One that reads slowly
/// does not delay the other one.
///
/// The first gets each change of a Certificate, the second only that cert-manager has issued it: each item of its queue is a
/// connection to a runtime.
pub fn share(options: &KymaOptions) -> (Kymas, Kymas, impl Future<Output = ()> + Send + use<>) {
    let (store, writer) = store();
    let known = KnownKymas {
        store,
        namespace: options.namespace.clone(),
        bootstrappers: Api::namespaced(options.client.clone(), &options.namespace),
        has_bootstrappers: Arc::default(),
    };
    let (lacking, lacking_condition) = mpsc::unbounded();
    let runtimes = options.watch_runtimes((Arc::clone(&known.has_bootstrappers), lacking));
    let own = known.clone();
    let runtimes = runtimes.filter(move |event| ready(own.is_changed_by(event)));
    let runtimes = reflector(writer, runtimes.map(Ok))
        .touched_objects()
        .filter_map(|it| ready(it.ok()))
        // Without its version and UID, which each place of a queue would keep.
        .map(|it| Change {
            kyma: reference_of(&it),
            concerns_watcher: true,
        });
    let mut changes = stream::select(runtimes.boxed(), options.watch_certificates().boxed());
    let (to_certificates, certificates) = mpsc::unbounded();
    let (to_watchers, watchers) = mpsc::unbounded();
    let watching = async move {
        while let Some(Change {
            kyma,
            concerns_watcher,
        }) = changes.next().await
        {
            // A controller that has ended has dropped its receiver.
            if concerns_watcher {
                drop(to_watchers.unbounded_send(kyma.clone()));
            }
            drop(to_certificates.unbounded_send(kyma));
        }
    };
    let certificates = Kymas {
        known: known.clone(),
        changed: certificates,
        lacking_condition: mpsc::unbounded().1,
    };
    let watchers = Kymas {
        known,
        changed: watchers,
        lacking_condition,
    };
    (certificates, watchers, watching)
}

/// A Kyma that may have to be reconciled.
struct Change {
    kyma: ObjectRef<KymaView>,
    concerns_watcher: bool,
}

fn reference_of(kyma: &KymaView) -> ObjectRef<KymaView> {
    ObjectRef::new(&kyma.name_any()).within(&kyma.namespace().unwrap_or_default())
}

impl KymaOptions {
    fn watch_runtimes(
        &self,
        of_bootstrappers: (Arc<AtomicBool>, UnboundedSender<String>),
    ) -> impl Stream<Item = Event<KymaView>> + Send + use<> {
        let checks = ["kymas-watch", "runtimebootstrappers-watch"];
        let checks = checks.map(|it| self.readiness.check(it));
        watch_runtimes(&self.client, &self.namespace, checks, of_bootstrappers)
    }

    /// The Kymas of Certificates that appear, change or disappear.
    fn watch_certificates(&self) -> impl Stream<Item = Change> + Send + use<> {
        let kind = (CERT_MANAGER_API_VERSION, "Certificate");
        let certificates = objects(&self.client, &self.certificate_namespace, kind);
        let label = format!("{PURPOSE_LABEL}={PURPOSE}");
        let config = Config::default().labels(&label).page_size(PAGE_SIZE);
        let check = self.readiness.check("certificates-watch");
        let (namespace, gateway) = (self.namespace.clone(), self.gateway_certificate.clone());
        let mut revisions = Revisions::default();
        watch_with_backoff(certificates, config, check).filter_map(move |event| {
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
            }))
        })
    }
}

/// The last revision of each Certificate. cert-manager increments it after it has written the Secret.
#[derive(Default)]
struct Revisions(HashMap<String, u64>);

impl Revisions {
    /// Whether the Certificate was issued since it was observed the last time; `None`: it is deleted.
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

    /// The names of RuntimeBootstrappers that have changed and lack the condition `WatcherInstalled`; for the controller of the
    /// watcher on runtimes alone.
    pub(crate) fn lacking_condition(&mut self) -> UnboundedReceiver<String> {
        std::mem::replace(&mut self.lacking_condition, mpsc::unbounded().1)
    }

    /// What is to be reconciled: each Kyma that changes, all of them whenever `of_all` changes, and `others`.
    pub(crate) fn queue<T: Send + Sync + 'static>(
        self,
        of_all: watch::Receiver<T>,
        others: impl Stream<Item = ObjectRef<KymaView>> + Send + 'static,
        token: CancellationToken,
    ) -> impl Stream<Item = Result<ObjectRef<KymaView>, Infallible>> + Send {
        let store = self.known.store;
        let all = stream::unfold(of_all, async |mut of_all| {
            of_all.changed().await.ok()?;
            Some(((), of_all))
        });
        let all = all.flat_map(move |()| {
            let kymas = store.state().into_iter();
            stream::iter(kymas.map(|it| reference_of(&it)))
        });
        stream::select_all([self.changed.boxed(), all.boxed(), others.boxed()])
            .map(Ok)
            .take_until(token.cancelled_owned())
    }
}

impl KnownKymas {
    /// Whether an event has to be stored: of a Kyma that is known, only a change that matters to a reconcile.
    fn is_changed_by(&self, event: &Event<KymaView>) -> bool {
        let Event::Apply(kyma) = event else {
            return true;
        };
        let before = self.store.get(&reference_of(kyma));
        before.is_none_or(|it| !it.is_equivalent(kyma))
    }

    /// Whether there is a Kyma of that name, or a RuntimeBootstrapper in its place.
    pub(crate) fn has(&self, name: &str) -> bool {
        let reference = ObjectRef::new(name).within(&self.namespace);
        self.store.get(&reference).is_some()
    }

    /// Whether all RuntimeBootstrappers are in the store.
    pub(crate) fn has_bootstrappers(&self) -> bool {
        self.has_bootstrappers.load(Ordering::Acquire)
    }

    /// Whether there is none, not even one that is not in the store yet.
    ///
    /// # Errors
    /// KCP does not say whether there is a RuntimeBootstrapper.
    pub(crate) async fn is_gone(&self, name: &str) -> kube::Result<bool> {
        // Read before the store, which has all of them from then on.
        let is_complete = self.has_bootstrappers();
        let is_known = self.has(name);
        if is_known || is_complete {
            return Ok(!is_known);
        }
        // The watch may fail for long, or the kind not be served.
        let found = self.bootstrappers.get_opt(name).await?;
        Ok(found.is_none_or(|it| it.view.runtime_id.is_none()))
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
        // Another Certificate of the same name.
        assert!(observe(revision(1)));
    }
}
