//! Tests of the removal of a run's objects at its end.

use std::time::Duration;

use serde_json::json;
use testkit::apiserver::ApiServer;
use testkit::until::until;

use crate::Verdict;
use crate::fixture::{DOCUMENT, SCENARIO, cluster, on_one, own_places, run, scenario};

#[tokio::test(start_paused = true)]
async fn interrupted_run_removes_what_it_made() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let hold = server.fault("create pods *").hold();
    let interrupt = async {
        let is_held = || async { hold.hits() > 0 };
        let reached = until("the Pod is being created", Duration::from_secs(5), is_held);
        reached.await.unwrap();
    };
    let ended = on_one(&scenario, &server).run(interrupt, &|_| ()).await;
    assert_eq!(ended.unwrap_err().to_string(), "interrupted");
    assert_eq!(server.requests_of("create namespaces *").len(), 1);
    assert_eq!(own_places(&server), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn run_ends_when_its_namespaces_are_gone_and_not_when_their_deletion_begins() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let own = |server: &ApiServer| {
        let places = server.store().places().into_iter();
        let mut own = places.filter(|it| it.name.starts_with("conformance-"));
        own.next().map(|it| it.name)
    };
    server.fault("delete namespaces *").before(move |server| {
        let name = own(server).unwrap();
        server.edit("namespaces", ("", &name), |it| {
            it["metadata"]["finalizers"] = json!(["a.test/slow"]);
        });
    });
    server.fault("get namespaces *").before(move |server| {
        let Some(name) = own(server) else { return };
        let gets = server.count(&format!("get namespaces {name}"));
        if gets == 5 {
            server.remove("namespaces", "", &name);
        }
    });
    let report = run(&scenario, &[&server]).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Conforms, "{:?}", report.checks);
    assert_eq!(own(&server), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_removed_is_an_error_with_the_command_that_removes_it() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    server.fault("delete namespaces *").status(403);
    let error = run(&scenario, &[&server]).await.unwrap_err().to_string();
    let command = "kubectl --kubeconfig skr delete namespace conformance-";
    assert!(error.contains(command), "{error}");
}
