//! An API server for the effects of plans: server-side apply with ownership of map fields, JSON patch, and deletion.

use std::collections::{BTreeMap, VecDeque};

use api::kcp::CONTROLLER_FIELD_MANAGER;
use api::names::PULL_SECRET;
use serde_json::{Value, json};

use crate::sync::ObjectNames;
use crate::sync::SourceKind;
use crate::sync::desired::Desired;
use crate::sync::identity::{IdentityRecord, Owner};
use crate::sync::manifests::Installation;
use crate::sync::observed::{NamespaceState, ObjectIdentity, Observed, WebhookObjects};
use crate::sync::plan::{Action, Context, Plan, Step, plan};
use crate::sync::target::Target;

use super::apply::{apply, fields, stored};
use super::samples::*;
/// A runtime, and the other inputs of a plan.
pub(super) struct Runtime {
    pub(super) observed: Observed,
    pub(super) names: ObjectNames,
    pub(super) installation: Installation,
    pub(super) owner: Owner,
    /// The objects that the webhook created.
    made: BTreeMap<Target, Value>,
    /// All applies, deletions and patches, as `verb kind/name`.
    pub(super) log: Vec<String>,
}

impl Runtime {
    /// Creates a runtime that KIM has provisioned, without objects of the controller.
    pub(super) fn new() -> Self {
        Self {
            observed: Observed {
                cluster: Some(UID.to_owned()),
                namespace: NamespaceState::Active,
                trust_bundles: Some("v1beta1".to_owned()),
                installed: Some(BTreeMap::new()),
                ..Observed::default()
            },
            names: ObjectNames {
                trust_bundle: Some(BUNDLE.to_owned()),
                ..ObjectNames::on_runtime()
            },
            installation: installation("0.1.0"),
            owner: Owner {
                runtime_id: "runtime-1".to_owned(),
                control_plane: salt().control_plane(),
            },
            made: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// Adds the objects of a running webhook: a copy in each of these namespaces, its certificate and its Lease.
    pub(super) fn webhook_makes(&mut self, namespaces: &[&str]) {
        let copies = namespaces.iter().map(|namespace| {
            let labels = json!({ (api::names::PULL_SECRET_COPY_LABEL): "true" });
            let copy = json!({
                "kind": "Secret", "type": api::names::DOCKER_CONFIG_TYPE,
                "metadata": { "name": PULL_SECRET, "namespace": namespace, "uid": namespace, "labels": labels },
            });
            (Target::secret(namespace, PULL_SECRET), copy)
        });
        self.made.extend(copies);
        for target in [
            Target::secret(NAMESPACE, api::names::WEBHOOK_CERTIFICATE),
            Target::lease(NAMESPACE, api::names::WEBHOOK_LEASE),
        ] {
            let object = json!({ "metadata": { "uid": target.name() } });
            self.made.insert(target, object);
        }
        self.look_at_made();
    }

    fn look_at_made(&mut self) {
        let mut made = WebhookObjects::default();
        for (target, live) in &self.made {
            match ObjectIdentity::of_copy(live) {
                Some(copy) => made.copies.push(copy),
                None => made.others.push(ObjectIdentity::of(target.clone(), live)),
            }
        }
        self.observed.webhook_objects = Some(made);
    }

    /// Removes a Deployment that is being deleted, as after the end of its Pods.
    pub(super) fn pods_end(&mut self) {
        let terminating = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
        if self.observed.deployment.as_ref().is_some_and(terminating) {
            self.observed.deployment = None;
        }
    }

    /// Creates a runtime that has the desired state.
    pub(super) fn converged(desired: &Desired) -> Self {
        let mut runtime = Self::new();
        runtime.converge(desired);
        runtime.log.clear();
        runtime
    }

    pub(super) fn context(&self) -> Context<'_> {
        Context {
            names: &self.names,
            installation: &self.installation,
            owner: &self.owner,
            record: IdentityRecord::default(),
        }
    }

    pub(super) fn plan(&self, desired: &Desired) -> Plan {
        plan(self.context(), desired, &self.observed)
    }

    /// Reconciles until no action remains, with a Deployment that becomes available immediately.
    pub(super) fn converge(&mut self, desired: &Desired) {
        for _ in 0..6 {
            let plan = self.plan(desired);
            if plan.is_empty() && !plan.is_deployment_pending() {
                return;
            }
            self.carry_out(&plan);
            self.roll_out();
        }
        panic!("no convergence: {:?}", self.plan(desired));
    }

    pub(super) fn carry_out(&mut self, plan: &Plan) {
        for step in plan.steps() {
            for action in step {
                self.apply_action(action);
            }
        }
    }

    /// Carries out a plan on an API server that refuses the trust bundle. Returns the actions that succeeded.
    pub(super) fn carry_out_without_bundle(&mut self, plan: &Plan) -> Vec<Action> {
        let mut done = Vec::new();
        let is_refused = |it: &&Action| {
            matches!(it, Action::Apply { .. }) && it.target().kind() == "ClusterTrustBundle"
        };
        let mut steps: VecDeque<Step> = plan.common.iter().cloned().collect();
        steps.push_back(plan.revocations.clone());
        steps.extend(plan.lanes.configuration.steps.iter().cloned());
        while let Some(step) = steps.pop_front() {
            for action in step.iter().filter(|it| !is_refused(it)) {
                self.apply_action(action);
                done.push(action.clone());
            }
            if step.iter().any(|it| is_refused(&it)) {
                steps = plan.fallback_after(&done).into();
            }
        }
        done
    }

    pub(super) fn apply_action(&mut self, action: &Action) {
        let target = action.target().clone();
        let (verb, kind) = (action.verb(), target.kind());
        self.log.push(format!("{verb} {kind}/{}", target.name()));
        let live = self.get(&target).cloned();
        let after = match action {
            Action::Create { object, .. } => {
                assert!(live.is_none(), "what is created is not there");
                Some(stored(Value::clone(object)))
            }
            Action::Apply { object, .. } => Some(apply(
                live.unwrap_or_else(|| json!({})),
                object,
                CONTROLLER_FIELD_MANAGER,
            )),
            Action::Delete {
                uid, foreground, ..
            } => {
                let mut live = live.expect("what is deleted is there");
                assert_eq!(
                    live.pointer("/metadata/uid").and_then(Value::as_str),
                    uid.as_deref()
                );
                live["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
                foreground.then_some(live)
            }
            Action::Transfer { patch, .. } | Action::RemoveFields { patch, .. } => {
                let mut live = live.expect("what is patched is there");
                let operations: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
                json_patch::patch(&mut live, &operations).unwrap();
                Some(stored(live))
            }
        };
        self.put(&target, after);
    }

    /// Sets the status of a Deployment whose rollout is complete, and the `caBundle` that the webhook writes.
    pub(super) fn roll_out(&mut self) {
        let installed = self.observed.installed.iter_mut();
        for live in installed.flat_map(BTreeMap::values_mut) {
            let entries = live.get_mut("webhooks").and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten() {
                entry["clientConfig"]["caBundle"] = json!("Q0E=");
            }
        }
        if let Some(live) = &mut self.observed.deployment {
            let replicas = live["spec"]["replicas"].clone();
            live["status"] = json!({
                "observedGeneration": live["metadata"]["generation"],
                "replicas": replicas,
                "updatedReplicas": replicas,
                "readyReplicas": replicas,
                "availableReplicas": replicas,
                "conditions": [
                    { "type": "Available", "status": "True" },
                    { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" },
                ],
            });
        }
    }

    /// Sets the status of a Deployment whose new Pods do not become available.
    pub(super) fn hang(&mut self) {
        self.roll_out();
        if let Some(live) = &mut self.observed.deployment {
            live["status"]["updatedReplicas"] = json!(1);
        }
    }

    /// Applies an object as KIM.
    pub(super) fn installer_applies(&mut self, object: &Value) {
        self.someone_applies(object, api::kcp::KIM_FIELD_MANAGER);
    }

    pub(super) fn someone_applies(&mut self, object: &Value, manager: &str) {
        let target = Target::of(object).unwrap();
        let live = self.get(&target).cloned().unwrap_or_else(|| json!({}));
        self.put(&target, Some(apply(live, object, manager)));
    }

    /// Creates an object with a POST by another client: the manager owns its fields by an update, not by an apply.
    pub(super) fn someone_creates(&mut self, object: &Value, manager: &str) {
        let target = Target::of(object).unwrap();
        assert!(self.get(&target).is_none(), "it is there already");
        let mut created = object.clone();
        created["metadata"]["managedFields"] = json!([{
            "manager": manager, "operation": "Update", "apiVersion": object["apiVersion"],
            "fieldsType": "FieldsV1", "fieldsV1": fields(object),
        }]);
        created["metadata"]["generation"] = json!(1);
        self.put(&target, Some(stored(created)));
    }

    pub(super) fn live(&self, kind: SourceKind) -> Option<&Value> {
        match kind {
            SourceKind::PullSecret => self.observed.pull_secret.as_ref(),
            SourceKind::TrustBundle => self.observed.trust_bundle.as_ref(),
            SourceKind::Configuration => self.observed.configuration.as_ref(),
        }
    }

    pub(super) fn get(&self, target: &Target) -> Option<&Value> {
        let observed = &self.observed;
        match (target.kind(), target.name()) {
            ("ConfigMap", api::kcp::OWNER_CONFIG_MAP) => observed.marker.as_ref(),
            ("ConfigMap", _) => observed.configuration.as_ref(),
            ("Secret", _) if is_source(target) => observed.pull_secret.as_ref(),
            ("Secret" | "Lease", _) => self.made.get(target),
            ("ClusterTrustBundle", _) => observed.trust_bundle.as_ref(),
            ("Deployment", _) => observed.deployment.as_ref(),
            _ => observed.installed.as_ref().and_then(|it| it.get(target)),
        }
    }

    fn put(&mut self, target: &Target, object: Option<Value>) {
        let observed = &mut self.observed;
        let slot = match (target.kind(), target.name()) {
            ("ConfigMap", api::kcp::OWNER_CONFIG_MAP) => &mut observed.marker,
            ("ConfigMap", _) => &mut observed.configuration,
            ("Secret", _) if is_source(target) => &mut observed.pull_secret,
            ("Secret" | "Lease", _) => {
                assert_eq!(object, None, "only the webhook makes it");
                self.made.remove(target);
                self.look_at_made();
                return;
            }
            ("ClusterTrustBundle", _) => &mut observed.trust_bundle,
            ("Deployment", _) => &mut observed.deployment,
            _ => {
                let installed = observed.installed.get_or_insert_default();
                match object {
                    Some(object) => installed.insert(target.clone(), object),
                    None => installed.remove(target),
                };
                return;
            }
        };
        *slot = object;
    }
}

/// Returns whether a Secret is the pull Secret itself, under any name.
fn is_source(target: &Target) -> bool {
    target.namespace() == Some(NAMESPACE) && target.name() != api::names::WEBHOOK_CERTIFICATE
}
