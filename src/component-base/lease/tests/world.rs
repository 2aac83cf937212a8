//! Replicas that compete for one Lease of an API server.

use std::future::ready;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use testkit::apiserver::respond::fault;
use testkit::apiserver::{ApiServer, Reset};
use testkit::until::until_every;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use tower::{ServiceExt as _, service_fn};

use super::{Duration, SECOND};
use crate::lease::*;

/// Behavior of the API server for one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Answers,
    Fails,
    Hangs,
    /// Executes the request and then returns an error.
    WritesAndFails,
}

/// An API server with one Lease.
#[derive(Clone)]
pub(super) struct Server(pub(super) ApiServer);

pub(super) fn record(holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "repairs", "namespace": "kyma-system", "labels": {"kept": "yes"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 1},
    })
}

impl Server {
    pub(super) fn new() -> Self {
        let server = ApiServer::new();
        server.namespace("kyma-system");
        Self(server)
    }

    pub(super) fn put(&self, lease: &Value) {
        self.0.put(lease);
    }

    pub(super) fn remove(&self) {
        self.0.remove("leases", "kyma-system", "repairs");
    }

    pub(super) fn get(&self) -> Value {
        let lease = self.0.get("leases", "kyma-system", "repairs");
        lease.unwrap_or_default()
    }

    pub(super) fn holder(&self) -> Option<String> {
        self.get()["spec"]["holderIdentity"]
            .as_str()
            .map(str::to_owned)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        let requests = self.0.requests();
        requests.iter().map(|it| it.asked.to_string()).collect()
    }

    /// Responds to a candidate with the given behavior.
    async fn answer(self, mood: Mood, request: Request<Body>) -> Result<Answer, Reset> {
        match mood {
            Mood::Answers => self.0.service().oneshot(request).await,
            Mood::Fails => Ok(fault(500, None)),
            Mood::Hangs => std::future::pending().await,
            Mood::WritesAndFails => {
                self.0.service().oneshot(request).await?;
                Ok(fault(500, None))
            }
        }
    }
}

type Answer = Response<testkit::apiserver::Body>;

/// One replica: the behavior of the API server for it, its work, and its shutdown.
pub(super) struct Replica {
    server: Arc<Mutex<Server>>,
    pub(super) mood: Arc<Mutex<Mood>>,
    /// Times at which its work started and ended, alternately.
    pub(super) log: Arc<Mutex<Vec<Instant>>>,
    pub(super) shutdown: CancellationToken,
    pub(super) metrics: LeaseMetrics,
    pub(super) running: JoinHandle<()>,
}

/// Records the end of the work, for any reason.
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
        let server = Arc::new(Mutex::new(server.clone()));
        let (own, current) = (mood.clone(), server.clone());
        let service = service_fn(move |request| {
            let mood = *own.lock().unwrap();
            current.lock().unwrap().clone().answer(mood, request)
        });
        let client = Client::new(service, "default");
        let options = LeaseOptions {
            namespace: "kyma-system".to_owned(),
            name: "repairs".to_owned(),
            identity: identity.parse().unwrap(),
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
            server,
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

    /// Sends the further requests to another API server.
    pub(super) fn moves(&self, server: &Server) {
        *self.server.lock().unwrap() = server.clone();
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
        let labels = [("name", "repairs".to_owned())];
        self.metrics.0.get_or_create(&labels).get()
    }

    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap();
    }
}

/// Waits with the paused clock, in steps that are short compared with each period of a Lease.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    let (pause, holds) = (Duration::from_millis(10), || ready(condition()));
    let waited = until_every(pause, what, 600 * SECOND, holds);
    waited.await.unwrap();
    began.elapsed()
}
