//! Decisions about Watchers on KCP: the VirtualService that routes events to the component of a Watcher, and the
//! Watcher's status.
//!
//! Invariants: a VirtualService that does not belong to the Watcher is never changed; a VirtualService or status that
//! equals the desired one is not written. Not in here: requests, clocks, and the webhooks of runtimes (see
//! [`change`](crate::change)).

use std::collections::BTreeSet;

use api::watcher::{KIND, Watcher};
use serde_json::{Value, json};
use watcher_types::{PathSegment, event_path};

mod registration;
mod status;

#[cfg(test)]
mod tests;

pub use registration::{RejectedWatcher, WebhookEntries, webhook_entries};
pub use status::{Outcome, RuntimeCounts, runtimes_status, status};

/// `apiVersion` of a VirtualService.
pub const ISTIO_API_VERSION: &str = "networking.istio.io/v1beta1";

/// The fields of an Istio Gateway that a VirtualService needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// `namespace/name`.
    pub reference: String,
    /// Hosts of all servers, without a namespace, in their order.
    pub hosts: Vec<String>,
}

/// Reason why events cannot be routed to the component of a Watcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The Watcher does not name its component.
    #[error(
        "manager missing: set spec.manager or the label {}",
        api::watcher::MANAGED_BY_LABEL
    )]
    ManagerMissing,
    /// The component cannot be part of a URL.
    #[error("manager invalid: up to 128 letters, digits, `-`, `_` and `.` expected")]
    ManagerInvalid,
    /// The Service is not named, or its port is not valid.
    #[error("serviceInfo invalid: name, namespace and a port from 1 to 65535 expected")]
    ServiceInvalid,
    /// The selector is not a valid label selector.
    #[error("gateway.selector invalid: {0}")]
    SelectorInvalid(String),
    /// The selector matches no Gateway.
    #[error("no Gateway in namespace {0} matches gateway.selector")]
    GatewayNotFound(String),
    /// A Gateway has no host.
    #[error("Gateway {0} has no hosts")]
    HostsMissing(String),
    /// The CustomResourceDefinitions of Istio are not installed.
    #[error("the API {ISTIO_API_VERSION} is not served: Istio is not installed")]
    IstioNotServed,
    /// The controller lacks a permission.
    #[error("missing permission: {0}")]
    Forbidden(String),
    /// Another object has the name of the VirtualService.
    #[error("VirtualService {0} belongs to another owner")]
    NotOwned(String),
}

impl RouteError {
    /// Returns the reason in conditions and Events.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ManagerMissing | Self::ManagerInvalid => "InvalidManager",
            Self::ServiceInvalid => "InvalidServiceInfo",
            Self::SelectorInvalid(_) => "InvalidGatewaySelector",
            Self::GatewayNotFound(_) => "WatcherGatewayNotFound",
            Self::HostsMissing(_) => "GatewayHostsNotFound",
            Self::IstioNotServed => "IstioAPINotServed",
            Self::Forbidden(_) => "Forbidden",
            Self::NotOwned(_) => "VirtualServiceConflict",
        }
    }
}

/// The action for the VirtualService of a Watcher.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteAction {
    /// The VirtualService is as desired.
    Keep,
    /// The VirtualService does not exist.
    Create(Value),
    /// The VirtualService differs. The object contains the resource version that was read.
    Replace(Value),
}

impl Gateway {
    /// Reads a Gateway. In a Gateway, Istio allows `namespace/host`, which is not valid in a VirtualService.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let namespace = text("/metadata/namespace").unwrap_or_default();
        let name = text("/metadata/name").unwrap_or_default();
        let servers = object.pointer("/spec/servers").and_then(Value::as_array);
        let hosts = servers
            .into_iter()
            .flatten()
            .filter_map(|server| server.get("hosts").and_then(Value::as_array))
            .flatten()
            .filter_map(Value::as_str)
            .map(|host| host.rsplit_once('/').map_or(host, |(_, host)| host))
            .filter(|host| !host.is_empty())
            .map(str::to_owned)
            .collect();
        Self {
            reference: format!("{namespace}/{name}"),
            hosts,
        }
    }
}

/// Manager of the Watcher for heartbeats: the controller itself.
pub const HEARTBEAT_MANAGER: &str = "runtime-bootstrapper";

/// Label of objects that the Watcher for heartbeats covers.
pub const REVIEW_PROBE_LABEL: &str = "runtime-bootstrapper.kyma-project.io/review-probe";

/// Returns whether a Watcher is the Watcher for heartbeats.
#[must_use]
pub fn is_for_heartbeats(watcher: &Watcher) -> bool {
    watcher.manager() == Some(HEARTBEAT_MANAGER)
}

/// Returns the component of a Watcher, as a part of URLs.
///
/// # Errors
/// [`RouteError::ManagerMissing`] or [`RouteError::ManagerInvalid`].
pub fn manager(watcher: &Watcher) -> Result<PathSegment, RouteError> {
    let manager = watcher.manager().ok_or(RouteError::ManagerMissing)?;
    PathSegment::parse(manager).map_err(|_| RouteError::ManagerInvalid)
}

/// Returns the VirtualService of a Watcher: all hosts of the gateways, one route.
///
/// # Errors
/// [`RouteError`] if the Watcher or a gateway is not complete.
pub fn virtual_service(watcher: &Watcher, gateways: &[Gateway]) -> Result<Value, RouteError> {
    let path = event_path(&PathSegment::V2, &manager(watcher)?);
    let service = &watcher.spec.service_info;
    if service.name.is_empty()
        || service.namespace.is_empty()
        || !(1..=65535).contains(&service.port)
    {
        return Err(RouteError::ServiceInvalid);
    }
    if let Some(gateway) = gateways.iter().find(|it| it.hosts.is_empty()) {
        return Err(RouteError::HostsMissing(gateway.reference.clone()));
    }
    let mut known = BTreeSet::new();
    let hosts = gateways.iter().flat_map(|it| &it.hosts);
    let hosts: Vec<&String> = hosts.filter(|host| known.insert(*host)).collect();
    let references: Vec<&String> = gateways.iter().map(|it| &it.reference).collect();
    let meta = &watcher.metadata;
    let [namespace, name] =
        [&meta.namespace, &meta.name].map(|it| it.as_deref().unwrap_or_default());
    Ok(json!({
        "apiVersion": ISTIO_API_VERSION,
        "kind": "VirtualService",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [owner_reference(watcher)],
        },
        "spec": {
            "gateways": references,
            "hosts": hosts,
            "http": [{
                "name": format!("{namespace}/{name}"),
                "match": [{ "uri": { "prefix": path } }],
                "route": [{ "destination": {
                    "host": format!("{}.{}.svc.cluster.local", service.name, service.namespace),
                    "port": { "number": service.port },
                } }],
            }],
        },
    }))
}

fn owner_reference(watcher: &Watcher) -> Value {
    json!({
        "apiVersion": format!("{}/{}", api::bootstrapper::GROUP, api::watcher::VERSION),
        "kind": KIND,
        "name": watcher.metadata.name,
        "uid": watcher.metadata.uid,
    })
}

/// Returns the action for the live VirtualService. Labels, annotations and other owners are not changed.
///
/// # Errors
/// [`RouteError::NotOwned`].
pub fn action(desired: Value, live: Option<Value>) -> Result<RouteAction, RouteError> {
    let Some(mut live) = live else {
        return Ok(RouteAction::Create(desired));
    };
    let owner = &desired["metadata"]["ownerReferences"][0];
    let owners = live["metadata"]["ownerReferences"].as_array();
    let position = owners.and_then(|all| all.iter().position(|it| is_watcher(it, owner)));
    let Some(position) = position else {
        let of = |key| desired["metadata"][key].as_str().unwrap_or_default();
        let name = format!("{}/{}", of("namespace"), of("name"));
        return Err(RouteError::NotOwned(name));
    };
    // A field that the API server adds to a reference is not compared.
    let is_same_owner = live["metadata"]["ownerReferences"][position]["uid"] == owner["uid"];
    if is_same_owner && live["spec"] == desired["spec"] {
        return Ok(RouteAction::Keep);
    }
    live["spec"] = desired["spec"].clone();
    live["metadata"]["ownerReferences"][position] = owner.clone();
    if let Some(metadata) = live["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(RouteAction::Replace(live))
}

/// Returns whether the VirtualService of a deleted Watcher belongs to it.
#[must_use]
pub fn is_owned_by(watcher: &Watcher, live: &Value) -> bool {
    let owner = owner_reference(watcher);
    let owners = live["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|all| all.iter().any(|it| is_watcher(it, &owner)))
}

/// Returns whether a reference is to the Watcher with this name, in any version. The UID differs after a restore from a backup.
fn is_watcher(reference: &Value, owner: &Value) -> bool {
    let group = |it: &Value| {
        let version = it["apiVersion"].as_str().unwrap_or_default();
        version.split('/').next().map(str::to_owned)
    };
    group(reference) == group(owner)
        && reference["kind"] == owner["kind"]
        && reference["name"] == owner["name"]
}

/// Returns the older Watcher with the same manager whose component gets the events of this Watcher, if there is one.
///
/// In this case two routes have the same prefix, and Istio uses the older route. Watchers with the same Service do
/// not conflict.
#[must_use]
pub fn conflict<'a>(
    watcher: &Watcher,
    others: impl IntoIterator<Item = &'a Watcher>,
) -> Option<&'a Watcher> {
    let age = |it: &Watcher| {
        let meta = &it.metadata;
        let created = meta.creation_timestamp.as_ref().map(|it| it.0);
        (created, meta.namespace.clone(), meta.name.clone())
    };
    let mine = age(watcher);
    others.into_iter().find(|other| {
        other.manager() == watcher.manager()
            && other.spec.service_info != watcher.spec.service_info
            && other.metadata.deletion_timestamp.is_none()
            && age(other) < mine
    })
}
