use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use serde_json::json;
use testkit::apiserver::ApiServer;
use tokio::time::Instant;

use super::*;
use crate::readiness::Readiness;

/// Returns an API server with one ConfigMap.
fn server() -> ApiServer {
    let server = ApiServer::new();
    server.put(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"},
    }));
    server
}

fn watched(server: &ApiServer) -> (Readiness, BoxStream<'static, Event<ConfigMap>>) {
    metered(server, WatchMetrics::default())
}

fn metered(
    server: &ApiServer,
    metrics: WatchMetrics,
) -> (Readiness, BoxStream<'static, Event<ConfigMap>>) {
    let readiness = Readiness::new(metrics);
    let condition = readiness.check("config watch");
    let stream = watch_with_backoff(
        Api::namespaced(server.client(), "n"),
        watcher::Config::default(),
        condition,
    );
    (readiness, stream.boxed())
}

const SECOND: Duration = Duration::from_secs(1);

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
    let (readiness, mut stream) = watched(&server());
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
    let server = server();
    let _failing = server.fault("list configmaps").times(8).status(500);
    let (readiness, mut stream) = watched(&server);
    let began = Instant::now();
    assert_eq!(take(&mut stream, 2).await, ["init", "init"]);
    let (ready, report) = readiness.report();
    assert!(!ready);
    assert!(
        report.starts_with("config watch: not ready: failing since 2"),
        "{report}"
    );
    assert!(report.contains("Internal error occurred"), "{report}");

    assert_eq!(take(&mut stream, 9).await[7..], ["init-apply", "init-done"]);
    assert!(readiness.is_ready());
    // Between half and the whole of 0.8 + 1.6 + 3.2 + 6.4 + 12.8 + 25.6 + 30 + 30 seconds.
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(55), "{took:?}");
    assert!(took <= Duration::from_secs(111), "{took:?}");
}

/// The CustomResourceDefinition of the kind is not installed yet.
#[rstest]
#[case::of_another_installation(true)]
#[case::of_this_installation(false)]
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_only_fails_the_check_if_this_installation_defines_it(
    #[case] is_foreign: bool,
) {
    let server = server();
    let mut all = None;
    server.behave(|it| {
        let others = it.kinds.iter().copied();
        let others = others.filter(|it| it.resource != "configmaps").collect();
        all = Some(std::mem::replace(&mut it.kinds, others));
    });
    let metrics = WatchMetrics::default();
    let readiness = Readiness::new(metrics.clone());
    let api = Api::<ConfigMap>::namespaced(server.client(), "n");
    let (config, check) = (watcher::Config::default(), readiness.check("w"));
    let mut stream = if is_foreign {
        watch_if_served(api, config, check).boxed()
    } else {
        watch_with_backoff(api, config, check).boxed()
    };
    assert!(!readiness.is_ready(), "the API server did not respond yet");
    assert_eq!(take(&mut stream, 2).await, ["init", "init"]);
    let (ready, report) = readiness.report();
    assert_eq!(ready, is_foreign, "{report}");
    assert!(report.contains("failing since 2"), "{report}");
    assert_eq!(metrics.is_failing("w"), Some(true));

    server.behave(|it| it.kinds = all.unwrap());
    let _failing = server.fault("list configmaps").times(1).status(500);
    assert_eq!(take(&mut stream, 1).await, ["init"]);
    assert_eq!(readiness.is_ready(), is_foreign, "another failure");
    assert_eq!(take(&mut stream, 2).await, ["init-apply", "init-done"]);
    assert_eq!(readiness.report(), (true, "w: ready\n".to_owned()));
    assert_eq!(metrics.is_failing("w"), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_failing_watch_stays_ready_with_a_remark_until_an_event_comes() {
    let server = server();
    let failing = server.fault("watch configmaps").status(503);
    let (readiness, mut stream) = watched(&server);
    take(&mut stream, 3).await;

    let reported = async {
        while !readiness.report().1.contains("ready: failing since") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = reported => {}
        event = stream.next() => panic!("no event yet: {event:?}"),
    }
    assert!(readiness.is_ready());
    failing.stop();
    server.edit("configmaps", ("n", "c"), |it| {
        it["data"] = json!({"k": "v"});
    });
    assert_eq!(take(&mut stream, 1).await, ["apply"]);
    assert_eq!(readiness.report().1, "config watch: ready\n");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_merely_silent_after_a_failure_works() {
    let server = server();
    let _failing = server.fault("watch configmaps").times(1).status(500);
    let (readiness, mut stream) = watched(&server);
    take(&mut stream, 3).await;
    assert!(
        timeout(Duration::from_secs(5), stream.next())
            .await
            .is_err()
    );
    assert!(readiness.report().1.contains("failing since"));
    assert!(timeout(RECOVERY_TIMEOUT, stream.next()).await.is_err());
    assert_eq!(readiness.report().1, "config watch: ready\n");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_lists_anew() {
    let server = server();
    let (readiness, mut stream) = watched(&server);
    take(&mut stream, 3).await;
    // The watch is open, and there are no events.
    assert!(timeout(SECOND, stream.next()).await.is_err());
    server.store().expire_watches();
    assert_eq!(
        take(&mut stream, 3).await,
        ["init", "init-apply", "init-done"]
    );
    assert_eq!(readiness.report().1, "config watch: ready\n");
}

/// A watch from a version that a restored API server has not reached yet gets no events.
#[rstest]
#[case::a_broken_connection(1, None, false)]
#[case::an_outage(2, None, true)]
#[case::a_rejection(2, Some(403), false)]
#[tokio::test(start_paused = true)]
async fn a_watch_lists_again_after_an_outage(
    #[case] failures: usize,
    #[case] code: Option<u16>,
    #[case] lists: bool,
) {
    let server = server();
    let fault = server.fault("watch configmaps").times(failures);
    let fault = match code {
        Some(code) => fault.status(code),
        None => fault.reset(),
    };
    let (_readiness, mut stream) = watched(&server);
    take(&mut stream, 3).await;
    let next = timeout(RECOVERY_TIMEOUT, stream.next()).await;
    assert_eq!(fault.hits(), failures);
    assert_eq!(next.is_ok(), lists, "{next:?}");
    if lists {
        let rest = take(&mut stream, 2).await;
        assert_eq!(rest, ["init-apply", "init-done"]);
    }
}

/// Lists do not show that watches succeed.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_beside_lists_that_succeed_lists_once_more_and_stays_failing() {
    let server = server();
    let _fault = server.fault("watch configmaps").reset();
    let metrics = WatchMetrics::default();
    let (_readiness, mut stream) = metered(&server, metrics.clone());
    take(&mut stream, 3).await;
    take(&mut stream, 3).await;
    let next = timeout(Duration::from_mins(10), stream.next()).await;
    assert!(next.is_err(), "{next:?}");
    assert_eq!(metrics.is_failing("config watch"), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_is_begun_again() {
    let readiness = Readiness::default();
    let begin = || stream::iter([Ok(Event::<ConfigMap>::Init), Ok(Event::InitDone)]).boxed();
    let mut stream = supervise(begin, WatchHealth::new(readiness.check("w"))).boxed();
    let expected = ["init", "init-done", "init", "init-done"];
    assert_eq!(take(&mut stream, 4).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_failing_watch_is_a_metric_until_the_server_answers() {
    let server = server();
    let _lists = server.fault("list configmaps").times(1).status(500);
    let watches = server.fault("watch configmaps").status(503);
    let metrics = WatchMetrics::default();
    let (_readiness, mut stream) = metered(&server, metrics.clone());
    let is_failing = || metrics.is_failing("config watch");
    assert_eq!(is_failing(), Some(false));
    assert_eq!(take(&mut stream, 2).await, ["init", "init"]);
    assert_eq!(is_failing(), Some(true), "the first list fails");
    assert_eq!(take(&mut stream, 2).await, ["init-apply", "init-done"]);
    assert_eq!(is_failing(), Some(false));

    assert!(timeout(SECOND * 5, stream.next()).await.is_err());
    assert_eq!(is_failing(), Some(true), "the watch fails");
    watches.stop();
    server.edit("configmaps", ("n", "c"), |it| {
        it["data"] = json!({"k": "v"});
    });
    assert_eq!(take(&mut stream, 1).await, ["apply"]);
    assert_eq!(is_failing(), Some(false));
}

/// A replica that lost the Lease is as ready as a replica that never was the leader.
#[tokio::test(start_paused = true)]
async fn a_dropped_watch_leaves_neither_a_condition_nor_a_failure() {
    let server = server();
    let _failing = server.fault("list configmaps").status(500);
    let metrics = WatchMetrics::default();
    let (readiness, mut stream) = metered(&server, metrics.clone());
    readiness.check("other").ready();
    take(&mut stream, 2).await;
    assert!(!readiness.is_ready());
    drop(stream);
    assert_eq!(readiness.report(), (true, "other: ready\n".to_owned()));
    assert_eq!(metrics.is_failing("config watch"), Some(false));
}
