//! Known objects of every runtime on KCP: its Runtime and its `RuntimeBootstrapper`.
//!
//! Invariant: one entry per name, which is removed when neither object exists; entries are small, because there are
//! thousands. Not in here: kubeconfigs, objects on runtimes, and times.

use std::collections::HashMap;

use api::bootstrapper::{
    CONFIGURATION_SYNCHRONIZED, ConditionStatus, IDENTITY_VERIFIED, INSTALLED, REACHABLE, READY,
    RuntimeBootstrapper, RuntimeBootstrapperStatus,
};
use api::kcp::{RUNTIME_ID, SHOOT_NAME, WAVE_LABEL};
use kube::core::{Selector, SelectorExt as _};
use kube::{Resource as _, ResourceExt as _};
use policy::sync::desired::Desired;
use policy::sync::rollout::{Initial, Name, order};
use policy::sync::signal::Eligibility;
use policy::sync::status::{ConnectionError, Reason};
use policy::sync::{Hash, Lane, SourceKind};

use super::compact_status::{CompactStatus, InternPool, Interned};
use super::lifecycle::is_managed;
use crate::clients::RuntimeId;
use crate::inventory::RuntimeView;
use crate::requests::MANAGED_BY;

/// The relevant fields of a Runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuntimeInfo {
    id: Option<RuntimeId>,
    /// Value of the label with the name of the shoot.
    pub(super) shoot: Option<Box<str>>,
    /// Whether the labels select mode `direct`.
    is_direct: bool,
    /// Order in a rollout, from the label `wave`.
    pub(super) order: u32,
    is_terminating: bool,
    /// Whether KIM may be signaled when the runtime is orphaned.
    pub(super) eligibility: Eligibility,
}

impl RuntimeInfo {
    /// Reads a Runtime.
    pub(super) fn read(
        view: &RuntimeView,
        adopt: &Selector,
        signal_selector: &Selector,
    ) -> (String, Self) {
        let labels = view.meta().labels.clone().unwrap_or_default();
        let id = labels
            .get(RUNTIME_ID)
            .filter(|id| !id.is_empty())
            .map(|id| RuntimeId::new(id));
        let is_direct = adopt.matches(&labels);
        let info = Self {
            id,
            shoot: labels.get(SHOOT_NAME).map(|it| it.as_str().into()),
            is_direct,
            eligibility: if is_direct {
                Eligibility::Direct
            } else {
                view.eligibility(signal_selector)
            },
            order: order(labels.get(WAVE_LABEL).map(String::as_str)),
            is_terminating: view.is_terminating(),
        };
        (view.meta().name.clone().unwrap_or_default(), info)
    }
}

/// The conditions that the controller sets.
const CONDITIONS: [&str; 5] = [
    REACHABLE,
    IDENTITY_VERIFIED,
    INSTALLED,
    CONFIGURATION_SYNCHRONIZED,
    READY,
];

/// The Runtime and the `RuntimeBootstrapper` of one name.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) resource: Option<Interned<RuntimeBootstrapper>>,
    info: Option<RuntimeInfo>,
    /// Whether the controller created the resource.
    is_managed: bool,
    /// The last reported status, which may not be written to KCP yet.
    pub(super) status: CompactStatus,
    /// Whether the status on KCP differs: the update is pending, or another client wrote the status.
    pub(super) status_differs: bool,
}

/// Action of the controller on the resource itself, in addition to the reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdoptionAction {
    /// No action.
    Nothing,
    /// Create the resource: the Runtime selects mode `direct` and has no resource.
    Adopt,
    /// Delete the resource: the controller created it, and the Runtime no longer selects mode `direct`.
    Delete,
}

/// Kind of a change of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No change of a field that a reconcile uses.
    None,
    /// A change of annotations, labels, or the deletion timestamp.
    Metadata,
    /// A change of the spec, or a new resource.
    Spec,
}

/// All runtimes.
#[derive(Default)]
pub(super) struct RuntimeStore {
    /// Boxed, because a third of the places of a map is empty.
    entries: HashMap<Name, Box<Entry>>,
    /// Sorted names by runtime ID. Two Runtimes with the same ID are an error of the user.
    ids: HashMap<RuntimeId, Vec<Name>>,
    resources: InternPool<RuntimeBootstrapper>,
    pub(super) statuses: InternPool<RuntimeBootstrapperStatus>,
}

impl RuntimeStore {
    /// Returns the entry of a runtime.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).map(Box::as_ref)
    }

    /// Returns the mutable entry of a runtime.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.get_mut(name).map(Box::as_mut)
    }

    /// Returns all entries with a resource.
    pub(super) fn resources(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name, &**entry))
            .filter(|(_, entry)| entry.resource.is_some())
    }

    /// Returns the name of an entry, shared with the key of the map.
    pub(super) fn name(&self, name: &str) -> Name {
        self.entries
            .get_key_value(name)
            .map_or_else(|| name.into(), |(name, _)| Name::clone(name))
    }

    /// Returns the names of the Runtimes with a runtime ID.
    pub(super) fn by_id(&self, id: &str) -> Vec<Name> {
        self.ids
            .get(&RuntimeId::new(id))
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Stores a resource. Returns the kind of the change.
    pub(super) fn put_resource(&mut self, mut resource: RuntimeBootstrapper) -> Change {
        resource.meta_mut().managed_fields = None;
        let is_managed = is_managed(&resource);
        if is_managed
            && resource
                .labels()
                .keys()
                .all(|it| it == MANAGED_BY || it == SHOOT_NAME)
        {
            // Empty labels are dropped, because a map allocates memory for several entries.
            resource.meta_mut().labels = None;
        }
        // The creation timestamp is not used. It differs in each resource, so it could not be shared.
        resource.meta_mut().creation_timestamp = None;
        let name: Name = self.name(&resource.name_any());
        let entry = self.entries.entry(name).or_default();
        let before = entry.resource.as_ref().map(Interned::expand);
        let same = before.filter(|it| it.uid() == resource.uid());
        let change = match &same {
            Some(before) if before.spec != resource.spec => Change::Spec,
            Some(before) if !has_relevant_change(before, &resource) => Change::None,
            Some(_) => Change::Metadata,
            None => Change::Spec,
        };
        // The status is stored separately from the resource.
        let mut stored = resource.status.take().unwrap_or_default();
        // Conditions of other controllers are neither compared nor written.
        stored
            .conditions
            .retain(|it| CONDITIONS.contains(&&*it.kind));
        let stored = self.statuses.intern(stored);
        if same.is_none() {
            entry.status = stored;
            entry.status_differs = false;
        } else {
            entry.status_differs = entry.status != stored;
        }
        entry.is_managed = is_managed;
        entry.resource = Some(self.resources.intern(resource));
        change
    }

    /// Removes a resource.
    pub(super) fn drop_resource(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.resource = None;
            entry.status = CompactStatus::default();
        }
        self.remove_if_empty(name);
    }

    /// Stores a Runtime. Returns the runtimes that have to be reconciled, including runtimes with the same runtime ID.
    pub(super) fn put_runtime(&mut self, name: &str, info: RuntimeInfo) -> Vec<Name> {
        let name = self.name(name);
        let entry = self.entries.entry(Name::clone(&name)).or_default();
        if entry.info.as_ref() == Some(&info) {
            return Vec::new();
        }
        let mut affected = vec![Name::clone(&name)];
        let before = entry.info.replace(info.clone()).and_then(|it| it.id);
        if before != info.id {
            affected.extend(self.unlink(before.as_ref(), &name));
            if let Some(id) = info.id {
                let names = self.ids.entry(id).or_insert_with(|| Vec::with_capacity(1));
                affected.extend(names.iter().cloned());
                if let Err(index) = names.binary_search(&name) {
                    names.insert(index, name);
                }
            }
        }
        affected
    }

    /// Removes a Runtime. Returns the runtimes that have to be reconciled.
    pub(super) fn drop_runtime(&mut self, name: &str) -> Vec<Name> {
        let before = self
            .entries
            .get_mut(name)
            .and_then(|entry| entry.info.take())
            .and_then(|info| info.id);
        let mut affected = self.unlink(before.as_ref(), name);
        affected.push(self.name(name));
        self.remove_if_empty(name);
        affected
    }

    /// Returns the action of the controller on the resource itself.
    pub(super) fn adoption_action(&self, name: &str) -> AdoptionAction {
        let Some(entry) = self.entries.get(name) else {
            return AdoptionAction::Nothing;
        };
        let is_wanted = entry
            .info
            .as_ref()
            .is_some_and(|it| it.is_direct && !it.is_terminating);
        match &entry.resource {
            None if is_wanted => AdoptionAction::Adopt,
            Some(resource)
                if !is_wanted
                    && entry.is_managed
                    && resource.shape().meta().deletion_timestamp.is_none() =>
            {
                AdoptionAction::Delete
            }
            _ => AdoptionAction::Nothing,
        }
    }

    /// Returns the runtime ID of a Runtime, if no other Runtime has the same ID.
    pub(super) fn identify(&self, name: &str) -> Result<RuntimeId, ConnectionError> {
        let entry = self.entries.get(name);
        let info = entry
            .and_then(|it| it.info.as_ref())
            .filter(|info| !info.is_terminating)
            .ok_or_else(|| {
                let resource = entry.and_then(|it| it.resource.as_ref());
                let namespace = resource.and_then(|it| it.shape().metadata.namespace.as_deref());
                ConnectionError::RuntimeNotFound(format!(
                    "{}/{name}",
                    namespace.unwrap_or_default()
                ))
            })?;
        let id = info.id.clone().ok_or(ConnectionError::RuntimeIDMissing)?;
        let mut others = self.ids.get(&id).into_iter().flatten();
        match others.find(|other| &***other != name) {
            Some(other) => Err(ConnectionError::RuntimeIDConflict(other.to_string())),
            None => Ok(id),
        }
    }

    /// Returns the Runtime with a name, if it exists.
    pub(super) fn info(&self, name: &str) -> Option<&RuntimeInfo> {
        self.entries.get(name)?.info.as_ref()
    }

    /// Removes a name from a runtime ID. Returns the other names that have the ID.
    fn unlink(&mut self, id: Option<&RuntimeId>, name: &str) -> Vec<Name> {
        let Some(names) = id.and_then(|id| self.ids.get_mut(id)) else {
            return Vec::new();
        };
        names.retain(|it| **it != *name);
        let rest = names.clone();
        if let (true, Some(id)) = (names.is_empty(), id) {
            self.ids.remove(id);
        }
        rest
    }

    fn remove_if_empty(&mut self, name: &str) {
        let empty = |entry: &Entry| entry.resource.is_none() && entry.info.is_none();
        if self.get(name).is_some_and(empty) {
            self.entries.remove(name);
        }
    }
}

/// Returns whether metadata changed that a reconcile uses. Writes of the controller do not change such metadata.
fn has_relevant_change(before: &RuntimeBootstrapper, after: &RuntimeBootstrapper) -> bool {
    before.meta().deletion_timestamp != after.meta().deletion_timestamp
        || before.annotations() != after.annotations()
        || before.labels() != after.labels()
}

/// Returns the initial state of a runtime in the rollout of a lane, from its status. `is_resumed` means that an
/// earlier leader started the rollout.
pub(super) fn initial(
    status: &RuntimeBootstrapperStatus,
    lane: Lane,
    desired: &Desired,
    is_resumed: bool,
) -> Initial {
    let condition = |kind: &str| status.conditions.iter().find(|it| it.kind == kind);
    let is_unreachable = !is_reached(status);
    let is_false =
        |kind: &str| condition(kind).is_some_and(|it| it.status == ConditionStatus::False);
    let has_reason = |kind: &str, reasons: &[Reason]| {
        condition(kind).is_some_and(|it| reasons.iter().any(|reason| reason.name() == it.reason))
    };
    match lane {
        Lane::Webhook => {
            let webhook = status.webhook.as_ref();
            let revision = webhook.and_then(|it| {
                let revision = it.update_revision.as_ref().or(it.manifest_hash.as_ref())?;
                Some(revision.parse().unwrap_or(Hash::UNKNOWN))
            });
            let failures = [
                Reason::ProgressDeadlineExceeded,
                Reason::ApplyFailed,
                Reason::ImmutableField,
            ];
            Initial {
                revision,
                is_complete: webhook.is_some_and(|it| it.manifest_hash.is_some()),
                is_unreachable,
                is_failed: is_false(INSTALLED) && has_reason(INSTALLED, &failures),
            }
        }
        Lane::Configuration => {
            let reported = status.configuration.as_ref();
            let mut kinds = SourceKind::ALL.into_iter();
            let has_some = reported.is_some_and(|it| kinds.any(|kind| kind.hash(it).is_some()));
            let has_failed = has_reason(CONFIGURATION_SYNCHRONIZED, &[Reason::ApplyFailed]);
            Initial {
                // In a resumed rollout, a failure belongs to the revision of the rollout.
                revision: if desired.is_synchronized(reported) || (is_resumed && has_failed) {
                    Some(desired.revision)
                } else {
                    has_some.then_some(Hash::UNKNOWN)
                },
                is_complete: desired.is_synchronized(reported) || !has_failed,
                is_unreachable,
                is_failed: has_failed && !desired.is_synchronized(reported),
            }
        }
    }
}

/// Returns whether the last reconcile reached the runtime and verified its identity.
fn is_reached(status: &RuntimeBootstrapperStatus) -> bool {
    let kinds = [REACHABLE, IDENTITY_VERIFIED];
    !status
        .conditions
        .iter()
        .any(|it| kinds.contains(&&*it.kind) && it.status == ConditionStatus::False)
}

impl CompactStatus {
    /// Returns whether the last reconcile reached the runtime and verified its identity.
    pub(super) fn is_reached(&self) -> bool {
        is_reached(self.shape())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(touched: &str, image: &str) -> RuntimeBootstrapper {
        let metadata = json!({"name": "a", "uid": "u", "annotations": {"touched": touched}});
        let spec = json!({"webhook": {"image": image}});
        let object = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
            "metadata": metadata, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn spec_change_differs_from_annotation_change() {
        let mut store = RuntimeStore::default();
        let mut put = |touched, image| store.put_resource(resource(touched, image));
        assert_eq!(put("once", "a:1"), Change::Spec);
        assert_eq!(put("once", "a:1"), Change::None);
        assert_eq!(put("twice", "a:1"), Change::Metadata);
        assert_eq!(put("twice", "a:2"), Change::Spec);
    }
}
