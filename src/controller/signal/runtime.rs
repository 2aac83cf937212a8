//! The fields of a Runtime that mode `signal` stores.

use std::collections::BTreeMap;
use std::time::Duration;

use api::kcp::{
    FORCE_RECONCILE_KEY, SIGNALED_REVISION_ANNOTATION, STATE_READY, SUSPEND_RECONCILIATION,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::core::Selector;
use policy::sync::signal::{
    KeyState, KimActivity, ObservedKeys, ObservedRuntime, RuntimeState, SignalKeys, Signaled,
};
use tokio::time::Instant;

use crate::inventory::RuntimeView;

/// Time after the acknowledgement of a signal within which KIM copies the sources. KIM removes the key in the
/// reconcile that copies them, and does not set another state than `Ready` before.
pub(super) const COPY_DURATION: Duration = Duration::from_mins(1);

/// The stored fields of a Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedRuntime {
    /// The resource version, if it is a number, which every known API server uses.
    version: Option<u64>,
    /// The observed Runtime. Its eligibility depends only on its own labels and state.
    pub(super) runtime: ObservedRuntime,
    /// Time until which KIM may not have copied the sources after its last acknowledgement.
    pub(super) copying_until: Option<Instant>,
    /// Whether KIM has ended a reconcile since the previous evaluation.
    pub(super) is_reconciled: bool,
}

impl CachedRuntime {
    pub(super) fn read(view: &RuntimeView, selector: &Selector) -> Self {
        let metadata = view.meta();
        let is_true = |map: &Option<BTreeMap<String, String>>, key: &str| {
            let value = map.as_ref().and_then(|it| it.get(key));
            value.is_some_and(|it| it == "true")
        };
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
        Self {
            version: metadata
                .resource_version
                .as_ref()
                .and_then(|it| it.parse().ok()),
            runtime: ObservedRuntime {
                eligibility: view.eligibility(selector),
                signaled: Signaled::from(annotation(SIGNALED_REVISION_ANNOTATION)),
                keys: ObservedKeys {
                    label: is_true(&metadata.labels, FORCE_RECONCILE_KEY),
                    annotation: is_true(&metadata.annotations, FORCE_RECONCILE_KEY),
                },
                foreign: false,
                spoiled: false,
                activity: KimActivity::None,
                state: match view.state() {
                    _ if is_true(&metadata.annotations, SUSPEND_RECONCILIATION) => {
                        RuntimeState::Suspended
                    }
                    None | Some("" | STATE_READY) => RuntimeState::Ready,
                    Some(_) => RuntimeState::NotReady,
                },
                created: metadata.creation_timestamp.as_ref().map(|it| it.0),
            },
            copying_until: None,
            is_reconciled: false,
        }
    }

    /// Returns the newer one of two versions of a Runtime. A watch may return a version that is older than the
    /// response to a write.
    pub(super) fn after(mut self, before: Option<&Self>, keys: SignalKeys) -> Self {
        let versions = before.and_then(|it| Some((it.version?, self.version?, it)));
        if let Some((known, observed, before)) = versions
            && observed < known
        {
            return *before;
        }
        self.runtime.follow(before.map(|it| &it.runtime), keys);
        let is_complete = |it: &Self| keys.state(it.runtime.keys) == KeyState::Complete;
        let is_ended = |it: &Self| {
            it.is_reconciled
                || it.runtime.state == RuntimeState::NotReady
                    && self.runtime.state == RuntimeState::Ready
        };
        self.is_reconciled = before.is_some_and(is_ended);
        self.copying_until = before.and_then(|before| {
            if is_complete(before) && !is_complete(&self) {
                return Some(Instant::now() + COPY_DURATION);
            }
            before.copying_until
        });
        self
    }

    /// Converts the response to a write, which contains the metadata without the state.
    pub(super) fn written(metadata: ObjectMeta) -> Self {
        Self::read(&metadata.into(), &Selector::default())
    }
}
