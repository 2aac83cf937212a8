use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::readiness::Readiness;
use crate::testing::{self, refusal};

/// One answer of the API server to a watch.
enum Watched {
    Refused(u16),
    /// These events, and then silence.
    Then(Vec<Value>),
}

/// An API server with prepared answers; without one, a list succeeds and a watch stays silent.
#[derive(Clone, Default)]
struct Server {
    lists: Arc<Mutex<VecDeque<u16>>>,
    watches: Arc<Mutex<VecDeque<Watched>>>,
}

fn object(version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "n", "resourceVersion": version},
    })
}

impl Server {
    fn lists(self, codes: impl IntoIterator<Item = u16>) -> Self {
        self.lists.lock().unwrap().extend(codes);
        self
    }

    fn watches(self, answers: impl IntoIterator<Item = Watched>) -> Self {
        self.watches.lock().unwrap().extend(answers);
        self
    }

    fn answer(&self, request: &Request<Body>) -> testing::Answer {
        if request
            .uri()
            .query()
            .unwrap_or_default()
            .contains("watch=true")
        {
            let answer = self.watches.lock().unwrap().pop_front();
            return match answer {
                Some(Watched::Refused(code)) => refusal(code, "refused"),
                Some(Watched::Then(events)) => stream_of(events),
                None => stream_of(Vec::new()),
            };
        }
        match self.lists.lock().unwrap().pop_front().unwrap_or(200) {
            200 => testing::json(
                200,
                &json!({
                    "apiVersion": "v1", "kind": "ConfigMapList",
                    "metadata": {"resourceVersion": "7"}, "items": [object("5")],
                }),
            ),
            code => refusal(code, "refused"),
        }
    }

    fn watched(&self) -> (Readiness, BoxStream<'static, Event<ConfigMap>>) {
        let server = self.clone();
        let client = testing::client(move |request| {
            let answer = server.answer(&request);
            async { answer }
        });
        let readiness = Readiness::default();
        let condition = readiness.condition("config watch");
        let stream = keep_watching(
            Api::namespaced(client, "n"),
            watcher::Config::default(),
            condition,
        );
        (readiness, stream.boxed())
    }
}

fn stream_of(events: Vec<Value>) -> testing::Answer {
    let lines = events
        .into_iter()
        .map(|event| Ok::<_, tower::BoxError>(Frame::data(Bytes::from(format!("{event}\n")))));
    let silence = stream::pending();
    let body = StreamBody::new(stream::iter(lines).chain(silence).boxed());
    Response::new(body.boxed_unsync())
}

fn name<K>(event: &Event<K>) -> &'static str {
    match event {
        Event::Apply(_) => "apply",
        Event::Delete(_) => "delete",
        Event::Init => "init",
        Event::InitApply(_) => "init-apply",
        Event::InitDone => "init-done",
    }
}

async fn take(
    stream: &mut BoxStream<'static, Event<ConfigMap>>,
    count: usize,
) -> Vec<&'static str> {
    let events: Vec<_> = stream.by_ref().take(count).collect().await;
    events.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn ready_with_the_first_complete_list() {
    let (readiness, mut stream) = Server::default().watched();
    assert_eq!(take(&mut stream, 2).await, ["init", "init-apply"]);
    assert_eq!(
        readiness.report().1,
        "config watch: not ready: first list not complete yet\n"
    );
    assert_eq!(take(&mut stream, 1).await, ["init-done"]);
    assert_eq!(
        readiness.report(),
        (true, "config watch: ready\n".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_tried_again_at_a_growing_distance() {
    let (readiness, mut stream) = Server::default().lists([500; 8]).watched();
    let began = Instant::now();
    assert_eq!(take(&mut stream, 2).await, ["init", "init"]);
    let (ready, report) = readiness.report();
    assert!(!ready);
    assert!(
        report.starts_with("config watch: not ready: failing since 2"),
        "{report}"
    );
    assert!(report.contains("refused"), "{report}");

    assert_eq!(take(&mut stream, 9).await[7..], ["init-apply", "init-done"]);
    assert!(readiness.is_ready());
    // Half and whole of 0.8 + 1.6 + 3.2 + 6.4 + 12.8 + 25.6 + 30 + 30 seconds.
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(55), "{took:?}");
    assert!(took <= Duration::from_secs(111), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_watch_stays_ready_with_a_remark_until_an_event_comes() {
    let event = json!({"type": "MODIFIED", "object": object("8")});
    let (readiness, mut stream) = Server::default()
        .watches([
            Watched::Refused(500),
            Watched::Refused(503),
            Watched::Then(vec![event]),
        ])
        .watched();
    take(&mut stream, 3).await;

    let failing = async {
        while !readiness.report().1.contains("ready: failing since") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = failing => {}
        event = stream.next() => panic!("no event yet: {event:?}"),
    }
    assert!(readiness.is_ready());
    assert_eq!(take(&mut stream, 1).await, ["apply"]);
    assert_eq!(readiness.report().1, "config watch: ready\n");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_merely_silent_after_a_failure_works() {
    let (readiness, mut stream) = Server::default().watches([Watched::Refused(500)]).watched();
    take(&mut stream, 3).await;
    assert!(
        timeout(Duration::from_secs(5), stream.next())
            .await
            .is_err()
    );
    assert!(readiness.report().1.contains("failing since"));
    assert!(timeout(QUIET, stream.next()).await.is_err());
    assert_eq!(readiness.report().1, "config watch: ready\n");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_lists_anew() {
    let gone = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "too old", "reason": "Expired", "code": 410,
    }});
    let (readiness, mut stream) = Server::default()
        .watches([Watched::Then(vec![gone])])
        .watched();
    take(&mut stream, 3).await;
    assert_eq!(
        take(&mut stream, 3).await,
        ["init", "init-apply", "init-done"]
    );
    assert_eq!(readiness.report().1, "config watch: ready\n");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_is_begun_again() {
    let readiness = Readiness::default();
    let begin = || stream::iter([Ok(Event::<ConfigMap>::Init), Ok(Event::InitDone)]).boxed();
    let mut keeper = Keeper {
        events: begin(),
        begin,
        health: Health::new(readiness.condition("w")),
    };
    for expected in ["init", "init-done", "init", "init-done"] {
        assert_eq!(name(&keeper.next().await), expected);
    }
}
