//! What is known of every runtime: its `Runtime`, its `RuntimeBootstrapper`, the version of its kubeconfig.
//!
//! Invariant: one entry a name, gone when nothing of it is left; small, because there are thousands. Deliberately absent:
//! kubeconfigs, objects of runtimes, and time.

use std::collections::{BTreeSet, HashMap};

use api::bootstrapper::{
    CONFIGURATION_SYNCHRONIZED, ConditionStatus, IDENTITY_VERIFIED, INSTALLED, REACHABLE,
    RuntimeBootstrapper, RuntimeBootstrapperStatus,
};
use api::kcp::{RUNTIME_ID, SHOOT_NAME, WAVE_LABEL};
use kube::core::{Selector, SelectorExt as _};
use kube::{Resource as _, ResourceExt as _};
use policy::sync::desired::Desired;
use policy::sync::rollout::{Initial, Name, order};
use policy::sync::signal::Eligibility;
use policy::sync::status::{Reason, Unreached};
use policy::sync::{Hash, Lane};

use super::compact_status::{CompactStatus, InternPool, Interned};
use super::lifecycle::{MANAGED_BY, is_made_by_us};
use crate::clients::RuntimeId;
use crate::signal::runtime::RuntimeView;

/// A Runtime, as little of it as is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuntimeInfo {
    id: Option<RuntimeId>,
    /// Its label with the name of the shoot.
    shoot: Option<Box<str>>,
    /// Whether its labels ask for direct mode.
    chosen: bool,
    order: u32,
    leaves: bool,
    /// Whether today's manager may be told of it once it is not direct.
    standing: Eligibility,
}

impl RuntimeInfo {
    /// Reads a Runtime.
    pub(super) fn read(view: &RuntimeView, adopt: &Selector, told: &Selector) -> (String, Self) {
        let labels = view.meta().labels.clone().unwrap_or_default();
        let id = labels
            .get(RUNTIME_ID)
            .filter(|id| !id.is_empty())
            .map(|id| RuntimeId::new(id));
        let chosen = adopt.matches(&labels);
        let facts = Self {
            id,
            shoot: labels.get(SHOOT_NAME).map(|it| it.as_str().into()),
            chosen,
            standing: if chosen {
                Eligibility::Direct
            } else {
                view.standing(told)
            },
            order: order(labels.get(WAVE_LABEL).map(String::as_str)),
            leaves: view.leaves(),
        };
        (view.meta().name.clone().unwrap_or_default(), facts)
    }
}

/// One runtime.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) resource: Option<Interned<RuntimeBootstrapper>>,
    facts: Option<RuntimeInfo>,
    /// Whether we made the resource.
    ours: bool,
    /// The last status, which may not be stored on KCP yet.
    pub(super) status: CompactStatus,
    /// Whether the last one that KCP reported is another one. Unless it is on its way, somebody else wrote it.
    pub(super) status_differs: bool,
}

/// What is to be done about a resource on the control plane itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdoptionAction {
    /// Nothing: the runtime is kept in step, or left alone.
    Nothing,
    /// The Runtime asks for direct mode, and there is no resource yet.
    Adopt,
    /// The resource is ours, and the Runtime does not ask any more.
    Dismiss,
}

/// What changed in a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that a reconcile uses.
    None,
    /// Annotations, labels, or a deletion was requested.
    Metadata,
    /// The spec, or all of it is new.
    Spec,
}

/// All runtimes.
#[derive(Default)]
pub(super) struct RuntimeStore {
    entries: HashMap<Name, Entry>,
    /// Runtimes by id; more than one name is a mistake.
    ids: HashMap<RuntimeId, BTreeSet<Name>>,
    resources: InternPool<RuntimeBootstrapper>,
    pub(super) statuses: InternPool<RuntimeBootstrapperStatus>,
}

impl RuntimeStore {
    /// A runtime.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// A runtime.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.get_mut(name)
    }

    /// All that have a resource.
    pub(super) fn resources(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.resource.is_some())
    }

    /// The names of all that have a Runtime.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = &Name> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.facts.is_some())
            .map(|(name, _)| name)
    }

    /// The name of an entry, as its own text.
    pub(super) fn name(&self, name: &str) -> Name {
        self.entries
            .get_key_value(name)
            .map_or_else(|| name.into(), |(name, _)| Name::clone(name))
    }

    /// The names of the runtimes with an id.
    pub(super) fn by_id(&self, id: &str) -> Vec<Name> {
        self.ids
            .get(&RuntimeId::new(id))
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Notes a resource, and returns what changed.
    pub(super) fn put_resource(&mut self, mut resource: RuntimeBootstrapper) -> Change {
        resource.meta_mut().managed_fields = None;
        let ours = is_made_by_us(&resource);
        if ours
            && resource
                .labels()
                .keys()
                .all(|it| it == MANAGED_BY || it == SHOOT_NAME)
        {
            // A map allocates memory for many.
            resource.meta_mut().labels = None;
        }
        // Of no use here, and each of thousands has another time.
        resource.meta_mut().creation_timestamp = None;
        let name: Name = self.name(&resource.name_any());
        let entry = self.entries.entry(name).or_default();
        let before = entry.resource.as_ref().map(Interned::open);
        let same = before.filter(|it| it.uid() == resource.uid());
        let change = match &same {
            Some(before) if before.spec != resource.spec => Change::Spec,
            Some(before) if !asks_anew(before, &resource) => Change::None,
            Some(_) => Change::Metadata,
            None => Change::Spec,
        };
        // It is kept beside the resource.
        let stored = self
            .statuses
            .close(resource.status.take().unwrap_or_default());
        if same.is_none() {
            entry.status = stored;
            entry.status_differs = false;
        } else {
            entry.status_differs = entry.status != stored;
        }
        entry.ours = ours;
        entry.resource = Some(self.resources.close(resource));
        change
    }

    /// Notes that a resource is gone.
    pub(super) fn drop_resource(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.resource = None;
            entry.status = CompactStatus::default();
        }
        self.tidy(name);
    }

    /// Notes a Runtime; gives those that a pass should follow for: namesakes by id are in each other's way.
    pub(super) fn put_runtime(&mut self, name: &str, facts: RuntimeInfo) -> Vec<Name> {
        let name = self.name(name);
        let entry = self.entries.entry(Name::clone(&name)).or_default();
        if entry.facts.as_ref() == Some(&facts) {
            return Vec::new();
        }
        let mut affected = vec![Name::clone(&name)];
        let before = entry.facts.replace(facts.clone()).and_then(|it| it.id);
        if before != facts.id {
            affected.extend(self.unlink(before.as_ref(), &name));
            if let Some(id) = facts.id {
                let namesakes = self.ids.entry(id).or_default();
                affected.extend(namesakes.iter().cloned());
                namesakes.insert(name);
            }
        }
        affected
    }

    /// Notes that a Runtime is gone; gives those that a pass should follow for.
    pub(super) fn drop_runtime(&mut self, name: &str) -> Vec<Name> {
        let before = self
            .entries
            .get_mut(name)
            .and_then(|entry| entry.facts.take())
            .and_then(|facts| facts.id);
        let mut affected = self.unlink(before.as_ref(), name);
        affected.push(self.name(name));
        self.tidy(name);
        affected
    }

    /// What is to be done about the resource itself.
    pub(super) fn wish(&self, name: &str) -> AdoptionAction {
        let Some(entry) = self.entries.get(name) else {
            return AdoptionAction::Nothing;
        };
        let asks = entry
            .facts
            .as_ref()
            .is_some_and(|it| it.chosen && !it.leaves);
        match &entry.resource {
            None if asks => AdoptionAction::Adopt,
            Some(resource)
                if !asks && entry.ours && resource.shape().meta().deletion_timestamp.is_none() =>
            {
                AdoptionAction::Dismiss
            }
            _ => AdoptionAction::Nothing,
        }
    }

    /// The runtime ID of a Runtime, if it has one that no other Runtime has.
    pub(super) fn identify(&self, name: &str) -> Result<RuntimeId, Unreached> {
        let entry = self.entries.get(name);
        let facts = entry
            .and_then(|it| it.facts.as_ref())
            .filter(|facts| !facts.leaves)
            .ok_or_else(|| {
                let resource = entry.and_then(|it| it.resource.as_ref());
                let namespace = resource.and_then(|it| it.shape().metadata.namespace.as_deref());
                Unreached::RuntimeNotFound(format!("{}/{name}", namespace.unwrap_or_default()))
            })?;
        let id = facts.id.clone().ok_or(Unreached::RuntimeIDMissing)?;
        let mut namesakes = self.ids.get(&id).into_iter().flatten();
        match namesakes.find(|other| &***other != name) {
            Some(other) => Err(Unreached::RuntimeIDConflict(other.to_string())),
            None => Ok(id),
        }
    }

    /// Whether the Runtime may be signalled, as far as it tells itself.
    pub(super) fn standing(&self, name: &str) -> Eligibility {
        let facts = self.entries.get(name).and_then(|it| it.facts.as_ref());
        facts.map_or(Eligibility::NotSelected, |it| it.standing)
    }

    /// The name of the runtime's shoot.
    pub(super) fn shoot(&self, name: &str) -> Option<&str> {
        let facts = self.entries.get(name).and_then(|it| it.facts.as_ref());
        facts.and_then(|it| it.shoot.as_deref())
    }

    /// The runtime's place in the order of waves.
    pub(super) fn order(&self, name: &str) -> u32 {
        self.entries
            .get(name)
            .and_then(|it| it.facts.as_ref())
            .map_or(u32::MAX, |it| it.order)
    }

    /// Gives those that still have the id.
    fn unlink(&mut self, id: Option<&RuntimeId>, name: &str) -> Vec<Name> {
        let Some(names) = id.and_then(|id| self.ids.get_mut(id)) else {
            return Vec::new();
        };
        names.remove(name);
        let rest = names.iter().cloned().collect();
        if let (true, Some(id)) = (names.is_empty(), id) {
            self.ids.remove(id);
        }
        rest
    }

    fn tidy(&mut self, name: &str) {
        let empty = |entry: &Entry| entry.resource.is_none() && entry.facts.is_none();
        if self.entries.get(name).is_some_and(empty) {
            self.entries.remove(name);
        }
    }
}

/// Whether metadata changed that a reconcile uses; the controller's own writes are not among them.
fn asks_anew(before: &RuntimeBootstrapper, after: &RuntimeBootstrapper) -> bool {
    before.meta().deletion_timestamp != after.meta().deletion_timestamp
        || before.annotations() != after.annotations()
        || before.labels() != after.labels()
}

/// What a status says about a runtime in the rollout of a lane, which an earlier leader began if it is resumed.
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
            let said = status.configuration.as_ref();
            let has_some = said.is_some_and(|it| {
                it.pull_secret_hash.is_some()
                    || it.trust_bundle_hash.is_some()
                    || it.config_map_hash.is_some()
            });
            let has_failed = has_reason(CONFIGURATION_SYNCHRONIZED, &[Reason::ApplyFailed]);
            Initial {
                // What failed in a resumed rollout was written for it.
                revision: if desired.is_held(said) || (is_resumed && has_failed) {
                    Some(desired.revision)
                } else {
                    has_some.then_some(Hash::UNKNOWN)
                },
                is_complete: desired.is_held(said) || !has_failed,
                is_unreachable,
                is_failed: has_failed && !desired.is_held(said),
            }
        }
    }
}

/// Whether the last reconcile reached the runtime and verified its identity.
fn is_reached(status: &RuntimeBootstrapperStatus) -> bool {
    let kinds = [REACHABLE, IDENTITY_VERIFIED];
    !status
        .conditions
        .iter()
        .any(|it| kinds.contains(&&*it.kind) && it.status == ConditionStatus::False)
}

impl CompactStatus {
    /// Whether the last reconcile reached the runtime and verified its identity.
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
    fn a_changed_spec_is_told_from_a_changed_annotation() {
        let mut store = RuntimeStore::default();
        let mut put = |touched, image| store.put_resource(resource(touched, image));
        assert_eq!(put("once", "a:1"), Change::Spec);
        assert_eq!(put("once", "a:1"), Change::None);
        assert_eq!(put("twice", "a:1"), Change::Metadata);
        assert_eq!(put("twice", "a:2"), Change::Spec);
    }
}
