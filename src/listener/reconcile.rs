//! For operators built with kube: events as requests for a `Controller`, the counterpart of the channel source.
//!
//! Deliberately absent: a client, and any choice of which object an event concerns; on KCP that is seldom the watched
//! object, which lives on the runtime, but the Kyma of the runtime.

use futures::{Stream, StreamExt as _};
use kube::runtime::reflector::{Lookup, ObjectRef};

use crate::queue::{Event, Events};

impl Events {
    /// The objects to reconcile, for `Controller::reconcile_on`: what `object` says for each event, if anything.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::runtime::reflector::ObjectRef;
    ///
    /// fn requests(
    ///     events: listener::Events,
    /// ) -> impl futures::Stream<Item = ObjectRef<ConfigMap>> + Send + 'static {
    ///     events.object_refs(|event| {
    ///         let runtime = event.runtime_id?;
    ///         Some(ObjectRef::new(runtime.as_str()).within("kcp-system"))
    ///     })
    /// }
    /// ```
    pub fn object_refs<K, F>(
        self,
        mut object: F,
    ) -> impl Stream<Item = ObjectRef<K>> + Send + 'static
    where
        K: Lookup + 'static,
        K::DynamicType: Send,
        F: FnMut(Event) -> Option<ObjectRef<K>> + Send + 'static,
    {
        self.filter_map(move |event| futures::future::ready(object(event)))
    }
}

#[cfg(test)]
mod tests;
