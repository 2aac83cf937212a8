//! As much of an API server as the plans' effects need: server-side apply with ownership of map fields, JSON patch, and
//! deletion.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::names::PULL_SECRET;
use api::runtimes::CONTROLLER_MANAGER;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::convergence::desired::Desired;
use crate::convergence::identity::{Claim, Owner};
use crate::convergence::known::{Grace, Known};
use crate::convergence::manifests::Installation;
use crate::convergence::observed::{Identity, Made, Names, NamespaceState, Observed};
use crate::convergence::plan::{Action, Context, Plan, plan};
use crate::convergence::sources::{
    ConfigMapView, Reading, SecretView, SourceNames, Sources, TrustBundleView, read_configuration,
    read_pull_secret, read_trust_bundle,
};
use crate::convergence::target::Target;
use crate::convergence::{Kind, Salt};

pub(super) const NAMESPACE: &str = "kyma-system";
pub(super) const BUNDLE: &str = "landscape";
pub(super) const UID: &str = "5f0c5f3c-0000-4000-8000-000000000001";

/// A runtime, and everything that the plans' functions want besides.
pub(super) struct Runtime {
    pub(super) observed: Observed,
    pub(super) names: Names,
    pub(super) installation: Installation,
    pub(super) owner: Owner,
    /// What the webhook made while it ran.
    made: BTreeMap<Target, Value>,
    /// Applies, deletions and patches since the beginning, by `verb kind/name`.
    pub(super) log: Vec<String>,
}

impl Runtime {
    /// One that today's manager has provisioned, without anything of ours.
    pub(super) fn new() -> Self {
        Self {
            observed: Observed {
                cluster: Some(UID.to_owned()),
                namespace: NamespaceState::Active,
                trust_bundles: Some("v1beta1".to_owned()),
                installed: Some(BTreeMap::new()),
                ..Observed::default()
            },
            names: Names {
                trust_bundle: Some(BUNDLE.to_owned()),
                ..Names::default()
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

    /// The webhook runs, and has made a copy in each of these namespaces, its certificate and its Lease.
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
        let mut made = Made::default();
        for (target, live) in &self.made {
            match Identity::of_copy(live) {
                Some(copy) => made.copies.push(copy),
                None => made.others.push(Identity::of(target.clone(), live)),
            }
        }
        self.observed.made = Some(made);
    }

    /// The Pods of a Deployment that is being deleted are gone.
    pub(super) fn pods_end(&mut self) {
        let terminating = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
        if self.observed.deployment.as_ref().is_some_and(terminating) {
            self.observed.deployment = None;
        }
    }

    /// One that holds everything of a version already.
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
            claim: Claim::default(),
        }
    }

    pub(super) fn plan(&self, desired: &Desired) -> Plan {
        plan(self.context(), desired, &self.observed)
    }

    /// Passes until nothing is left to do, with a Deployment that becomes available at once.
    pub(super) fn converge(&mut self, desired: &Desired) {
        for _ in 0..6 {
            let plan = self.plan(desired);
            if plan.is_empty() && !plan.waits() {
                return;
            }
            self.carry_out(&plan);
            self.roll_out();
        }
        panic!("no convergence: {:?}", self.plan(desired).steps);
    }

    pub(super) fn carry_out(&mut self, plan: &Plan) {
        for step in &plan.steps {
            for action in step {
                self.apply_action(action);
            }
        }
    }

    pub(super) fn apply_action(&mut self, action: &Action) {
        let target = action.target().clone();
        let verb = match action {
            Action::Apply { .. } => "apply",
            Action::Delete { .. } => "delete",
            Action::Transfer { .. } => "transfer",
        };
        self.log
            .push(format!("{verb} {}/{}", target.kind(), target.name()));
        let live = self.get(&target).cloned();
        let after = match action {
            Action::Apply { object, .. } => Some(apply(
                live.unwrap_or_else(|| json!({})),
                object,
                CONTROLLER_MANAGER,
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
            Action::Transfer { patch, .. } => {
                let mut live = live.expect("what is patched is there");
                let operations: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
                json_patch::patch(&mut live, &operations).unwrap();
                Some(stored(live))
            }
        };
        self.put(&target, after);
    }

    /// The Deployment's controller has done its work.
    pub(super) fn roll_out(&mut self) {
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

    /// The Deployment's new Pods do not come up.
    pub(super) fn hang(&mut self) {
        self.roll_out();
        if let Some(live) = &mut self.observed.deployment {
            live["status"]["updatedReplicas"] = json!(1);
        }
    }

    /// Today's installer writes an object.
    pub(super) fn installer_applies(&mut self, object: &Value) {
        self.someone_applies(object, api::runtimes::INSTALLER_MANAGER);
    }

    pub(super) fn someone_applies(&mut self, object: &Value, manager: &str) {
        let target = Target::of(object).unwrap();
        let live = self.get(&target).cloned().unwrap_or_else(|| json!({}));
        self.put(&target, Some(apply(live, object, manager)));
    }

    /// Somebody creates an object with a plain POST: the manager owns its fields by an update, not by an apply.
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

    pub(super) fn live(&self, kind: Kind) -> Option<&Value> {
        match kind {
            Kind::PullSecret => self.observed.pull_secret.as_ref(),
            Kind::TrustBundle => self.observed.trust_bundle.as_ref(),
            Kind::Configuration => self.observed.configuration.as_ref(),
        }
    }

    pub(super) fn get(&self, target: &Target) -> Option<&Value> {
        let observed = &self.observed;
        match (target.kind(), target.name()) {
            ("ConfigMap", api::runtimes::OWNER_MARKER) => observed.marker.as_ref(),
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
            ("ConfigMap", api::runtimes::OWNER_MARKER) => &mut observed.marker,
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

/// Whether a Secret is the pull Secret itself, whatever it is called.
fn is_source(target: &Target) -> bool {
    target.namespace() == Some(NAMESPACE) && target.name() != api::names::WEBHOOK_CERTIFICATE
}

pub(super) fn salt() -> Salt {
    Salt::new("11111111-2222-4333-8444-555555555555")
}

static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// Every write gives a new resource version.
fn stored(mut object: Value) -> Value {
    let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
    object["metadata"]["resourceVersion"] = version.to_string().into();
    if object["metadata"].get("uid").is_none() {
        object["metadata"]["uid"] = format!("uid-{version}").into();
    }
    // Of what is not set, an API server writes nothing.
    if object["spec"]["paused"] == false {
        object["spec"].as_object_mut().unwrap().remove("paused");
    }
    object
}

/// Server-side apply, forced: lists are one value, but for those whose items have names.
fn apply(mut live: Value, object: &Value, manager: &str) -> Value {
    let owned = fields(object);
    let spec = live["spec"].clone();
    let entries: Vec<Value> = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let is_own = |entry: &&Value| entry["manager"] == manager && entry["operation"] == "Apply";
    let before = entries
        .iter()
        .find(is_own)
        .map_or(json!({}), |it| it["fieldsV1"].clone());
    let others: Vec<&Value> = entries.iter().filter(|entry| !is_own(entry)).collect();
    remove(
        &mut live,
        &before,
        &owned,
        &others.iter().map(|it| &it["fieldsV1"]).collect::<Vec<_>>(),
    );
    merge(&mut live, object);
    let mut entries: Vec<Value> = others.into_iter().cloned().collect();
    entries.push(json!({
        "manager": manager, "operation": "Apply", "apiVersion": object["apiVersion"],
        "fieldsType": "FieldsV1", "fieldsV1": owned,
    }));
    live["metadata"]["managedFields"] = json!(entries);
    if object["kind"] == "Deployment" && live["spec"] != spec {
        let generation = live["metadata"]["generation"].as_u64().unwrap_or_default();
        live["metadata"]["generation"] = json!(generation + 1);
    }
    stored(live)
}

fn fields(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| {
                !matches!(key.as_str(), "apiVersion" | "kind" | "name" | "namespace")
            })
            .map(|(key, value)| {
                let below = if is_atomic(key) {
                    json!({})
                } else {
                    fields(value)
                };
                (format!("f:{key}"), below)
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) if is_named(items) => items
            .iter()
            .map(|item| (key_of(item), fields(item)))
            .collect::<Map<_, _>>()
            .into(),
        _ => json!({}),
    }
}

/// Lists whose items have names are merged by them.
fn is_named(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|it| it.get("name").is_some())
}

fn key_of(item: &Value) -> String {
    format!("k:{}", json!({ "name": item["name"] }))
}

/// Who applies a selector replaces all of it.
fn is_atomic(key: &str) -> bool {
    ["selector", "namespaceSelector", "objectSelector"].contains(&key)
}

/// Takes out what the manager owned, owns no more, and nobody else does.
fn remove(live: &mut Value, before: &Value, now: &Value, others: &[&Value]) {
    let Some(before) = before.as_object() else {
        return;
    };
    for (field, below) in before {
        let shared: Vec<&Value> = others.iter().filter_map(|it| it.get(field)).collect();
        let kept = now.get(field);
        let is_gone = kept.is_none() && shared.is_empty();
        let child = match live {
            Value::Object(map) if is_gone => {
                map.remove(field.trim_start_matches("f:"));
                continue;
            }
            Value::Array(items) if is_gone => {
                items.retain(|item| key_of(item) != *field);
                continue;
            }
            Value::Object(map) => map.get_mut(field.trim_start_matches("f:")),
            Value::Array(items) => items.iter_mut().find(|item| key_of(item) == *field),
            _ => None,
        };
        if let Some(child) = child {
            remove(child, below, kept.unwrap_or(&json!({})), &shared);
        }
    }
}

fn merge(live: &mut Value, object: &Value) {
    match (live, object) {
        (Value::Object(live), Value::Object(object)) => {
            for (key, value) in object {
                let slot = live.entry(key.as_str()).or_insert(Value::Null);
                if is_atomic(key) {
                    *slot = value.clone();
                } else {
                    merge(slot, value);
                }
            }
        }
        (Value::Array(live), Value::Array(items)) if is_named(items) => {
            for item in items {
                match live.iter_mut().find(|it| it["name"] == item["name"]) {
                    Some(live) => merge(live, item),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, object) => *live = object.clone(),
    }
}

/// The webhook's manifests, as far as the order needs them.
pub(super) fn manifests(version: &str) -> Vec<Value> {
    let labels = json!({ "app.kubernetes.io/name": "rt-bootstrapper" });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "manager", "namespace": NAMESPACE } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "manager-role" },
            "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] }] }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "webhook-service", "namespace": NAMESPACE },
            "spec": { "selector": labels, "ports": [{ "name": "https", "port": 443, "targetPort": "webhook" }] } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "rt-bootstrapper-controller-manager", "namespace": NAMESPACE,
                "labels": { "app.kubernetes.io/version": version } },
            "spec": { "replicas": 2, "paused": false, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "manager", "image": format!("webhook:{version}"),
                        "command": ["/runtime-bootstrapper", "webhook"] }] } } } }),
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": "webhook-configuration" },
            "webhooks": [{ "name": "mpod-v1.kb.io", "failurePolicy": "Ignore", "objectSelector": {},
                "namespaceSelector": { "matchExpressions": [
                    { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"] }] },
                "clientConfig": { "service": { "name": "webhook-service", "namespace": NAMESPACE } } }] }),
    ]
}

pub(super) fn installation(version: &str) -> Installation {
    Installation::new(manifests(version)).unwrap()
}

pub(super) fn secret(password: &str) -> Reading<crate::convergence::sources::PullSecret> {
    let config =
        json!({ "auths": { "registry.example": { "username": "u", "password": password } } });
    read_pull_secret(
        &salt(),
        Some(SecretView {
            r#type: Some("kubernetes.io/dockerconfigjson"),
            docker_config: Some(config.to_string().as_bytes()),
        }),
    )
}

/// A certificate as far as its outer form goes.
pub(super) fn pem(content: u8) -> String {
    use base64::Engine as _;
    let der = base64::engine::general_purpose::STANDARD.encode([0x30, 0x03, 0x02, 0x01, content]);
    format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n")
}

pub(super) fn bundle(content: u8) -> Reading<crate::convergence::sources::TrustBundle> {
    let text = pem(content);
    read_trust_bundle(
        &salt(),
        Some(TrustBundleView {
            signer_name: None,
            trust_bundle: Some(&text),
        }),
    )
}

pub(super) fn document(extra: &str) -> Reading<crate::convergence::sources::Document> {
    let text = format!(r#"{{"overrides":{{"docker.io":"mirror.example"}}{extra}}}"#);
    let data = BTreeMap::from([(api::names::CONFIG_KEY.to_owned(), text)]);
    read_configuration(&salt(), Some(ConfigMapView { data: Some(&data) }))
}

/// What makes a document name a bundle.
pub(super) fn mounting(bundle: &str) -> String {
    format!(
        r#","clusterTrustBundle":{{"name":"{bundle}","certWritePath":"a.crt","volumeMountPath":"/b","volumeName":"c"}}"#
    )
}

/// A source that is absent is deleted.
pub(super) const AT_ONCE: Grace = Grace {
    now: Timestamp::UNIX_EPOCH,
    period: Duration::ZERO,
};

/// A source that is absent is missing, and not deleted for five minutes.
pub(super) const NOT_YET: Grace = Grace {
    period: Duration::from_mins(5),
    ..AT_ONCE
};

/// What the sources are called on KCP.
pub(super) fn source_names() -> SourceNames {
    SourceNames {
        pull_secret: Some("pull".to_owned()),
        trust_bundle: Some("roots".to_owned()),
        ..SourceNames::default()
    }
}

/// All three sources, valid.
pub(super) fn sources() -> Sources {
    Sources {
        names: source_names(),
        pull_secret: secret("one"),
        trust_bundle: bundle(1),
        configuration: document(""),
    }
}

/// What is wanted of a runtime, if the sources have been like this from the beginning.
pub(super) fn desired(sources: &Sources) -> Desired {
    let mut known = Known::default();
    known.advance(sources, AT_ONCE);
    after(sources, &known)
}

pub(super) fn after(sources: &Sources, known: &Known) -> Desired {
    Desired::new(sources, known, &Runtime::new().names)
}
