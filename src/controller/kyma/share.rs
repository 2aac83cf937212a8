//! One watch of Kymas and of their Certificates for both controllers that reconcile Kymas: with thousands of runtimes, each watch
//! takes megabytes of memory.

use std::convert::Infallible;
use std::future::ready;

use component_base::readiness::Readiness;
use component_base::watch::watch_with_backoff;
use futures::channel::mpsc::{self, UnboundedReceiver};
use futures::{Stream, StreamExt as _, stream};
use kube::api::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, ResourceExt as _};
use policy::certificates::{CERT_MANAGER_API_VERSION, NAME_SUFFIX, PURPOSE, PURPOSE_LABEL};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{KymaView, watch_runtimes};
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
    store: Store<KymaView>,
    changed: UnboundedReceiver<ObjectRef<KymaView>>,
}

/// All Kymas for two controllers, and the future that watches. A controller that reads slowly does not delay the other one.
pub fn share(options: &KymaOptions) -> (Kymas, Kymas, impl Future<Output = ()> + Send + use<>) {
    let (store, writer) = store();
    let runtimes = reflector(writer, options.watch_runtimes().map(Ok))
        .touched_objects()
        .filter_map(|it| ready(it.ok()))
        // Without its version and UID, which each place of a queue would keep.
        .map(|it| reference(&it.name_any(), &it.namespace().unwrap_or_default()));
    let mut changes = stream::select(runtimes.boxed(), options.watch_certificates().boxed());
    let ((to_one, one), (to_other, other)) = (mpsc::unbounded(), mpsc::unbounded());
    let watching = async move {
        while let Some(change) = changes.next().await {
            // A controller that has ended has dropped its receiver.
            drop(to_one.unbounded_send(change.clone()));
            drop(to_other.unbounded_send(change));
        }
    };
    let [one, other] = [one, other].map(|changed| Kymas {
        store: store.clone(),
        changed,
    });
    (one, other, watching)
}

fn reference(name: &str, namespace: &str) -> ObjectRef<KymaView> {
    ObjectRef::new(name).within(namespace)
}

impl KymaOptions {
    fn watch_runtimes(&self) -> impl Stream<Item = Event<KymaView>> + Send + use<> {
        let checks = ["kymas-watch", "runtimebootstrappers-watch"];
        let checks = checks.map(|it| self.readiness.check(it));
        watch_runtimes(&self.client, &self.namespace, checks)
    }

    /// The Kymas of Certificates that appear, change or disappear. cert-manager writes the status of a Certificate after its Secret.
    fn watch_certificates(&self) -> impl Stream<Item = ObjectRef<KymaView>> + Send + use<> {
        let (group, version) = CERT_MANAGER_API_VERSION.split_once('/').unwrap_or_default();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "Certificate"));
        let certificates: Api<PartialObjectMeta<kube::api::DynamicObject>> =
            Api::namespaced_with(self.client.clone(), &self.certificate_namespace, &kind);
        let label = format!("{PURPOSE_LABEL}={PURPOSE}");
        let config = Config::default().labels(&label).page_size(PAGE_SIZE);
        let check = self.readiness.check("certificates-watch");
        let (namespace, gateway) = (self.namespace.clone(), self.gateway_certificate.clone());
        watch_with_backoff(certificates, config, check).filter_map(move |event| {
            let name = match event {
                Event::Apply(it) | Event::InitApply(it) | Event::Delete(it) => it.name_any(),
                Event::Init | Event::InitDone => return ready(None),
            };
            let kyma = name.strip_suffix(NAME_SUFFIX).filter(|_| name != gateway);
            ready(kyma.map(|it| reference(it, &namespace)))
        })
    }
}

impl Kymas {
    /// All that are known.
    pub(crate) fn store(&self) -> Store<KymaView> {
        self.store.clone()
    }

    /// What is to be reconciled: each Kyma that changes, all of them whenever `of_all` changes, and `others`.
    pub(crate) fn queue<T: Send + Sync + 'static>(
        self,
        of_all: watch::Receiver<T>,
        others: impl Stream<Item = ObjectRef<KymaView>> + Send + 'static,
        token: CancellationToken,
    ) -> impl Stream<Item = Result<ObjectRef<KymaView>, Infallible>> + Send {
        let store = self.store;
        let all = stream::unfold(of_all, async |mut of_all| {
            of_all.changed().await.ok()?;
            Some(((), of_all))
        });
        let all = all.flat_map(move |()| {
            let kymas = store.state().into_iter();
            stream::iter(
                kymas.map(|it| reference(&it.name_any(), &it.namespace().unwrap_or_default())),
            )
        });
        stream::select_all([self.changed.boxed(), all.boxed(), others.boxed()])
            .map(Ok)
            .take_until(token.cancelled_owned())
    }
}
