//! Tests that a run sends exactly the requests of its list.

use std::sync::{Arc, Mutex};

use api::names::SKR_NAMESPACE;
use http::{Method, Request};
use kube::client::Body;
use serde_json::json;
use testkit::locked;

use crate::fixture::{
    DOCUMENT, SCENARIO, cluster, ended, endpoint, kcp, on_one, options, scenario, with_metrics,
};
use crate::{Endpoint, KCP, Options, Run};

#[tokio::test(start_paused = true)]
async fn every_write_of_a_run_is_in_the_list_of_a_dry_run_and_in_namespaces_of_its_own() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let listed = on_one(&scenario, &server).requests();
    assert!(server.requests().is_empty(), "a list sends nothing");
    let lines = listed[0].1.iter().map(ToString::to_string);
    let is_write = |it: &String| !it.starts_with("GET") && !it.contains("selfsubjectaccessreviews");
    let is_own = |it: &String| it.contains("/namespaces/conformance-");
    let foreign: Vec<String> = lines.filter(|it| is_write(it) && !is_own(it)).collect();
    let namespaces = "POST   /api/v1/namespaces  # a namespace of this run";
    assert_eq!(foreign, [namespaces]);
}

type Sent = Arc<Mutex<Vec<(Method, String)>>>;

/// Returns the endpoint, and a record of the requests that are sent to it.
fn recorded(endpoint: Endpoint) -> (Endpoint, Sent) {
    let sent = Sent::default();
    let (client, seen) = (endpoint.client.clone(), Arc::clone(&sent));
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        locked(&seen).push((request.method().clone(), path));
        let client = client.clone();
        async move { client.send(request).await }
    });
    let client = kube::Client::new(service, "default");
    (Endpoint { client, ..endpoint }, sent)
}

#[tokio::test(start_paused = true)]
async fn every_request_of_a_run_is_in_the_list_of_a_dry_run() {
    let event =
        "{name: e, manifest: kyma.yaml, change: {patch: {spec: {channel: fast}}}, reported: false}";
    let text = format!("{SCENARIO}controlPlane: {{mode: direct}}\nevents: [{event}]\n");
    let (scenario, server) = (scenario(&text), cluster(DOCUMENT));
    server.put(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "w", "namespace": SKR_NAMESPACE, "labels": {"app": "skr-webhook"}},
    }));
    let page = || Some("watcher_outbox_events 0\n".to_owned());
    let (plane, of_plane) = recorded(endpoint(KCP, &kcp(DOCUMENT)));
    let (skr, of_skr) = recorded(with_metrics(endpoint("skr", &server), page));
    let options = Options {
        only_contract: false,
        ..options()
    };
    let run = Run::new(&scenario, Some(plane), vec![skr], options).unwrap();
    let listed = run.requests();
    ended(run).await.unwrap();
    for ((cluster, allowed), sent) in listed.iter().zip([of_plane, of_skr]) {
        let sent = std::mem::take(&mut *locked(&sent));
        for (method, path) in &sent {
            let is_listed = allowed.iter().any(|it| it.allows(method, path));
            assert!(is_listed, "{cluster}: {method} {path}");
        }
        let version = (Method::GET, "/version".to_owned());
        assert!(sent.contains(&version), "{cluster}: {sent:?}");
        let lines: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let line = "GET    /version  # version of the API server";
        assert!(lines.iter().any(|it| it == line), "{cluster}: {lines:?}");
    }
    assert_eq!(server.count("patch kymas"), 1, "the event was checked");
}
