//! An API server that stores one lease, and replicas that want it.

use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{Duration, SECOND};
use crate::lease::*;
use crate::testing::{self, json as answer_json, refusal};

/// How the API server treats one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Answers,
    Fails,
    Hangs,
    /// Does what is asked and then fails to say so.
    WritesAndFails,
}

/// One stored lease, with the optimistic lock of an API server.
#[derive(Clone, Default)]
pub(super) struct Server(pub(super) Arc<Mutex<Store>>);

#[derive(Default)]
pub(super) struct Store {
    pub(super) lease: Option<Value>,
    pub(super) version: u64,
    pub(super) requests: Vec<String>,
    /// Whose record appears just before the next write arrives.
    pub(super) quicker: Option<String>,
}

pub(super) fn record(holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "repairs", "namespace": "kyma-system", "labels": {"kept": "yes"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 1},
    })
}

impl Server {
    pub(super) fn put(&self, mut lease: Value) {
        let mut store = self.0.lock().unwrap();
        store.version += 1;
        lease["metadata"]["resourceVersion"] = json!(store.version.to_string());
        store.lease = Some(lease);
    }

    pub(super) fn get(&self) -> Value {
        self.0.lock().unwrap().lease.clone().unwrap_or_default()
    }

    pub(super) fn holder(&self) -> Option<String> {
        self.get()["spec"]["holderIdentity"]
            .as_str()
            .map(str::to_owned)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().requests.clone()
    }

    pub(super) async fn answer(self, mood: Mood, request: Request<Body>) -> testing::Answer {
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let sent: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let line = format!("{} {}", head.method, head.uri.path());
        self.0.lock().unwrap().requests.push(line);
        match mood {
            Mood::Answers => self.store(&head.method, sent),
            Mood::Fails => refusal(500, "broken"),
            Mood::Hangs => std::future::pending().await,
            Mood::WritesAndFails => {
                self.store(&head.method, sent);
                refusal(500, "broken")
            }
        }
    }

    pub(super) fn store(&self, method: &Method, sent: Value) -> testing::Answer {
        if *method == Method::GET {
            return match self.get() {
                Value::Null => refusal(404, "NotFound"),
                lease => answer_json(200, &lease),
            };
        }
        let quicker = self.0.lock().unwrap().quicker.take();
        if let Some(quicker) = quicker {
            self.put(record(&quicker));
        }
        let stored = self.get()["metadata"]["resourceVersion"].clone();
        if stored != sent["metadata"]["resourceVersion"] {
            return refusal(409, "Conflict");
        }
        self.put(sent);
        answer_json(200, &self.get())
    }
}

/// One replica: its client's fortune, its work, its end.
pub(super) struct Replica {
    pub(super) mood: Arc<Mutex<Mood>>,
    /// When its work began and ended, in turn.
    pub(super) log: Arc<Mutex<Vec<Instant>>>,
    pub(super) shutdown: CancellationToken,
    pub(super) metrics: LeaseMetrics,
    pub(super) running: JoinHandle<()>,
}

/// Notes the end of the work, however it ends.
pub(super) struct Noted(Arc<Mutex<Vec<Instant>>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(Instant::now());
    }
}

impl Replica {
    pub(super) fn start(server: &Server, identity: &str) -> Self {
        Self::start_with(server, identity, |token| async move {
            token.cancelled().await;
        })
    }

    pub(super) fn start_with<W, F>(server: &Server, identity: &str, work: W) -> Self
    where
        W: Fn(CancellationToken) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let mood = Arc::new(Mutex::new(Mood::Answers));
        let log = Arc::<Mutex<Vec<Instant>>>::default();
        let shutdown = CancellationToken::new();
        let metrics = LeaseMetrics::default();
        let client = testing::client({
            let (server, mood) = (server.clone(), mood.clone());
            move |request| {
                let mood = *mood.lock().unwrap();
                server.clone().answer(mood, request)
            }
        });
        let options = LeaseOptions {
            namespace: "kyma-system".to_owned(),
            name: "repairs".to_owned(),
            identity: identity.parse().unwrap(),
            timing: LeaseTiming::default(),
        };
        let noted = log.clone();
        let work = move |token| {
            let (work, log) = (work.clone(), noted.clone());
            async move {
                log.lock().unwrap().push(Instant::now());
                let _end = Noted(log);
                work(token).await;
            }
        };
        let running = tokio::spawn(run_while_leading(
            client,
            options,
            metrics.clone(),
            shutdown.clone(),
            work,
        ));
        Self {
            mood,
            log,
            shutdown,
            metrics,
            running,
        }
    }

    pub(super) fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(super) fn log(&self) -> Vec<Instant> {
        self.log.lock().unwrap().clone()
    }

    pub(super) fn terms(&self) -> usize {
        self.log().len().div_ceil(2)
    }

    pub(super) fn leads(&self) -> bool {
        self.log().len() % 2 == 1
    }

    pub(super) fn gauge(&self) -> i64 {
        let labels = Labels {
            name: "repairs".to_owned(),
        };
        self.metrics.0.get_or_create(&labels).get()
    }

    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap();
    }
}

/// Waits on the paused clock, in steps that are short beside every period of a lease.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < 600 * SECOND, "never came: {what}");
        sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}
