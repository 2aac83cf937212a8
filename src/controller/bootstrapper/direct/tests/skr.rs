//! A runtime's API server over TLS: as much of it as a pass needs.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::stream;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

use crate::runtimes::tests::server::{ApiServer, Body, Manner, answer, streamed};

const KYMA: &str = "/api/v1/namespaces/kyma-system";

/// In place of a status: the answer breaks off.
pub(super) const RESET: u16 = 0;

pub(super) struct Skr {
    server: ApiServer,
    /// Whoever writes here keeps every request waiting.
    gate: Arc<RwLock<()>>,
    /// Requests before the gate.
    waiting: Arc<AtomicUsize>,
    state: Arc<Mutex<State>>,
}

pub(super) struct State {
    pub(super) objects: BTreeMap<String, Value>,
    version: u64,
    /// `verb Kind/name`, of every write that was asked for.
    pub(super) writes: Vec<String>,
    /// Credentials of every request, in order.
    pub(super) tokens: Vec<String>,
    pub(super) token: &'static str,
    /// Whether Deployments become available.
    pub(super) rolls: bool,
    /// Every request gets this, with `Retry-After`.
    pub(super) fault: Option<(u16, u32)>,
    /// When requests came that got a fault.
    pub(super) faults: Vec<std::time::Instant>,
    /// Writes of which the text begins so are refused: status.
    pub(super) refusals: VecDeque<(&'static str, u16)>,
    pub(super) trust_bundles: Option<&'static str>,
    pub(super) rules: Value,
    /// The path that may not be read.
    pub(super) unreadable: Option<&'static str>,
    /// Whether an access review allows what it is asked.
    pub(super) allows: bool,
    /// Whether the Pods of a Deployment that is deleted run on.
    pub(super) pods_stay: bool,
}

impl Skr {
    pub(super) async fn new(uid: &str) -> Self {
        let namespace = |name: &str, uid: &str| {
            let path = format!("/api/v1/namespaces/{name}");
            (path, json!({"metadata": {"name": name, "uid": uid}}))
        };
        let state = Arc::new(Mutex::new(State {
            objects: BTreeMap::from([namespace("kube-system", uid), namespace("kyma-system", "k")]),
            version: 0,
            writes: Vec::new(),
            tokens: Vec::new(),
            token: "first",
            rolls: true,
            fault: None,
            faults: Vec::new(),
            refusals: VecDeque::new(),
            trust_bundles: Some("v1beta1"),
            rules: json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
            unreadable: None,
            allows: true,
            pods_stay: false,
        }));
        let gate = Arc::new(RwLock::new(()));
        let waiting = Arc::<AtomicUsize>::default();
        let shared = (state.clone(), gate.clone(), waiting.clone());
        let server = ApiServer::answering(Manner::default(), move |request| {
            let (state, gate, waiting) = shared.clone();
            async move {
                waiting.fetch_add(1, Ordering::SeqCst);
                let _open = gate.read().await;
                waiting.fetch_sub(1, Ordering::SeqCst);
                respond(&state, request).await
            }
        })
        .await;
        Self {
            server,
            gate,
            waiting,
            state,
        }
    }

    pub(super) fn address(&self) -> String {
        format!("https://{}", self.server.address)
    }

    /// Lets no request through until the guard is dropped.
    pub(super) async fn close(&self) -> OwnedRwLockWriteGuard<()> {
        self.gate.clone().write_owned().await
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn open(&self) -> usize {
        self.server.open()
    }

    /// How many requests the gate keeps waiting.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The writes so far, which are forgotten.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().writes)
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    /// An object of the product's namespace.
    pub(super) fn kyma(&self, plural_and_name: &str) -> Option<Value> {
        self.get(&format!("{KYMA}/{plural_and_name}"))
    }

    pub(super) fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        change(self.lock().objects.get_mut(path).unwrap());
    }

    /// All objects there are, each by its path.
    pub(super) fn inventory(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Somebody makes a Secret.
    pub(super) fn make_secret(&self, namespace: &str, name: &str, kind: &str, copy: bool) {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let labels = if copy {
            json!({"rt-bootstrapper.kyma-project.io/pull-secret-copy": "true"})
        } else {
            json!({})
        };
        let secret = json!({
            "kind": "Secret", "type": kind,
            "metadata": {"name": name, "namespace": namespace, "uid": path, "labels": labels},
        });
        self.lock().objects.insert(path, secret);
    }

    /// The webhook runs: it has its certificate and its Lease, and copies in so many namespaces.
    pub(super) fn webhook_runs(&self, copies: usize) {
        for number in 0..copies {
            let namespace = format!("customer-{number:03}");
            self.make_secret(
                &namespace,
                "registry-credentials",
                "kubernetes.io/dockerconfigjson",
                true,
            );
        }
        let certificate = "rt-bootstrapper-webhook-cert";
        self.make_secret("kyma-system", certificate, "kubernetes.io/tls", false);
        let path =
            "/apis/coordination.k8s.io/v1/namespaces/kyma-system/leases/rt-bootstrapper-webhook";
        let lease = json!({"kind": "Lease", "metadata": {"uid": "lease"}});
        self.lock().objects.insert(path.to_owned(), lease);
    }

    /// The Pods of Deployments that are being deleted end, and the Deployments go with them.
    pub(super) fn pods_end(&self) {
        let mut state = self.lock();
        state.pods_stay = false;
        state.objects.retain(|path, object| {
            !path.contains("/deployments/") || object["metadata"]["deletionTimestamp"].is_null()
        });
    }

    /// The Deployment's Pods are all there now.
    pub(super) fn roll_out(&self) {
        let mut state = self.lock();
        state.rolls = true;
        for (path, object) in &mut state.objects {
            if path.contains("/deployments/") {
                available(object, true);
            }
        }
    }
}

async fn respond(state: &Mutex<State>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let token = head.headers["authorization"].to_str().unwrap();
    let token = token.strip_prefix("Bearer ").unwrap().to_owned();
    let mut state = state.lock().unwrap();
    let good = token == state.token;
    state.tokens.push(token);
    if let Some((status, after)) = state.fault {
        state.faults.push(std::time::Instant::now());
        let mut response = answer(status, "{}");
        response.headers_mut().insert("retry-after", after.into());
        return response;
    }
    if !good {
        return answer(401, "{}");
    }
    let path = head.uri.path();
    let result = match head.method {
        Method::GET if state.unreadable == Some(path) => Err(403),
        Method::GET if path.ends_with("/clustertrustbundles") => state.bundles(path),
        Method::GET if path == "/api/v1/secrets" => {
            Ok(state.copies(head.uri.query().unwrap_or_default()))
        }
        Method::GET => state.objects.get(path).cloned().ok_or(404),
        Method::POST if path.ends_with("/selfsubjectaccessreviews") => {
            assert_eq!(body["spec"]["resourceAttributes"]["namespace"], json!(null));
            Ok(json!({"status": {"allowed": state.allows}}))
        }
        Method::POST => {
            assert!(path.ends_with("/selfsubjectrulesreviews"), "{path}");
            Ok(json!({"status": {"incomplete": false, "resourceRules": state.rules}}))
        }
        Method::PATCH if head.headers["content-type"] == "application/json-patch+json" => {
            state.transfer(path, &body)
        }
        Method::PATCH => {
            let query = head.uri.query().unwrap();
            assert_eq!(query, "fieldManager=rt-bootstrapper-controller&force=true");
            state.apply(path, &body)
        }
        Method::DELETE => state.delete(path, &body),
        other => panic!("unexpected: {other} {path}"),
    };
    match result {
        Ok(object) => answer(200, object.to_string()),
        Err(RESET) => streamed(stream::once(async { Err(io::Error::other("reset")) })),
        Err(status) => answer(status, refusal(status).to_string()),
    }
}

/// Kubernetes has one status for missing rights and for quotas; those who lack rights are told so by `rules`.
fn refusal(status: u16) -> Value {
    if status != 403 {
        return json!({"reason": "Refused"});
    }
    let message = "secrets \"x\" is forbidden: exceeded quota: few, requested: count/secrets=1";
    json!({"kind": "Status", "reason": "Forbidden", "message": message})
}

impl State {
    fn bundles(&self, path: &str) -> Result<Value, u16> {
        let version = path.split('/').nth(3);
        if version != self.trust_bundles {
            return Err(404);
        }
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(path))
            .map(|(_, object)| object)
            .collect();
        Ok(json!({"items": items}))
    }

    /// Secrets with the label and the type of copies, in pages.
    fn copies(&self, query: &str) -> Value {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let label = "rt-bootstrapper.kyma-project.io%2Fpull-secret-copy%3Dtrue";
        assert_eq!(value("labelSelector"), Some(label));
        let field = "type%3Dkubernetes.io%2Fdockerconfigjson";
        assert_eq!(value("fieldSelector"), Some(field));
        let from: usize = value("continue").map_or(0, |it| it.parse().unwrap());
        let limit: usize = value("limit").unwrap().parse().unwrap();
        let all: Vec<&Value> = self.objects.values().filter(|it| is_copy(it)).collect();
        let page: Vec<&&Value> = all.iter().skip(from).take(limit).collect();
        let next = (from + page.len() < all.len()).then(|| (from + page.len()).to_string());
        json!({"metadata": {"continue": next.unwrap_or_default()}, "items": page})
    }

    fn note(&mut self, verb: &str, kind: &Value, path: &str) -> Result<(), u16> {
        let name = path.rsplit('/').next().unwrap();
        let text = format!("{verb} {}/{name}", kind.as_str().unwrap());
        let refused = self
            .refusals
            .iter()
            .position(|(start, _)| text.starts_with(start));
        self.writes.push(text);
        match refused.and_then(|at| self.refusals.remove(at)) {
            Some((_, status)) => Err(status),
            None => Ok(()),
        }
    }

    fn apply(&mut self, path: &str, body: &Value) -> Result<Value, u16> {
        self.note("apply", &body["kind"], path)?;
        let live = self.objects.get(path).cloned();
        let mut after = live.clone().unwrap_or_else(|| json!({"metadata": {}}));
        if !body["data"].is_null() {
            after["data"] = json!({});
        }
        json_patch::merge(&mut after, body);
        after["metadata"]["managedFields"] = json!([{
            "manager": "rt-bootstrapper-controller", "operation": "Apply", "fieldsV1": {},
        }]);
        Ok(self.store(path, live.as_ref(), after))
    }

    fn store(&mut self, path: &str, live: Option<&Value>, mut after: Value) -> Value {
        if live == Some(&after) {
            return after;
        }
        self.version += 1;
        after["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if live.is_none() {
            after["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        if live.is_none_or(|it| it["spec"] != after["spec"]) {
            let before = after["metadata"]["generation"].as_u64().unwrap_or_default();
            after["metadata"]["generation"] = json!(before + 1);
            if path.contains("/deployments/") {
                available(&mut after, self.rolls);
            }
        }
        self.objects.insert(path.to_owned(), after.clone());
        after
    }

    fn transfer(&mut self, place: &str, operations: &Value) -> Result<Value, u16> {
        let live = self.objects.get(place).cloned().ok_or(404_u16)?;
        self.note("transfer", &live["kind"], place)?;
        let edit: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
        let mut after = live.clone();
        json_patch::patch(&mut after, &edit).map_err(|_| 422_u16)?;
        Ok(self.store(place, Some(&live), after))
    }

    fn delete(&mut self, path: &str, options: &Value) -> Result<Value, u16> {
        let live = self.objects.get(path).cloned().ok_or(404_u16)?;
        self.note("delete", &live["kind"], path)?;
        if options["preconditions"]["uid"] != live["metadata"]["uid"] {
            return Err(409);
        }
        if options["propagationPolicy"] == "Foreground" && self.pods_stay {
            let live = self.objects.get_mut(path).unwrap();
            live["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
            return Ok(json!({}));
        }
        // A webhook that runs makes its copies anew.
        let runs = self.objects.keys().any(|it| it.contains("/deployments/"));
        if !(runs && is_copy(&live)) {
            self.objects.remove(path);
        }
        Ok(json!({}))
    }
}

fn is_copy(object: &Value) -> bool {
    object["type"] == "kubernetes.io/dockerconfigjson"
        && object["metadata"]["labels"]["rt-bootstrapper.kyma-project.io/pull-secret-copy"]
            == "true"
}

fn available(deployment: &mut Value, rolls: bool) {
    let replicas = deployment["spec"]["replicas"].clone();
    let there = if rolls { replicas.clone() } else { json!(0) };
    deployment["status"] = json!({
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": replicas, "updatedReplicas": there, "readyReplicas": there, "availableReplicas": there,
        "conditions": [{"type": "Available", "status": if rolls { "True" } else { "False" }}],
    });
}
