//! Tests of the component `watcher` as a process: its ports, its delivery to KCP, its shutdown.
#![cfg(test)]

#[path = "watcher/exhaustion.rs"]
mod exhaustion;
#[path = "watcher/kcp.rs"]
mod kcp;
#[path = "support/ports.rs"]
mod ports;
#[path = "watcher/process.rs"]
mod process;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::until::until;
use watcher_types::Heartbeat;

use self::kcp::Kcp;
use self::ports::get;
use self::process::{Folder, PATIENCE, Running, command};

/// Returns a review of a Kyma that is created.
fn review(name: &str) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "operation": "CREATE", "name": name, "namespace": "kyma-system",
            "kind": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
            "object": {
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": {"name": name, "namespace": "kyma-system"}, "spec": {},
            },
        },
    })
}

/// The public watcher exits with status 0 in this case, so that a supervisor treats it as completed.
#[rstest]
#[case::nothing_is_set(&[], "CA_CERT (--ca-cert) is required")]
#[case::empty(&[("CA_CERT", "")], "CA_CERT (--ca-cert) is required")]
#[case::the_last_is_missing(
    &[("CA_CERT", "a"), ("TLS_CERT", "b"), ("TLS_KEY", "c"), ("KCP_ADDR", "kcp.test")],
    "KCP_CONTRACT (--kcp-contract) is required"
)]
fn missing_setting_is_a_failure_that_names_it(
    #[case] variables: &[(&str, &str)],
    #[case] expected: &str,
) {
    let ran = command().envs(variables.iter().copied()).output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(text.contains(expected), "{text}");
}

#[rstest]
#[case::of_go("-version")]
#[case::of_ours("--version")]
fn version_without_any_setting_is_printed(#[case] flag: &str) {
    let ran = command().arg(flag).output().unwrap();
    assert_eq!(ran.status.code(), Some(0));
    let expected = format!("Runtime Watcher version: {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected);
}

/// The flag `-development` of the public watcher, which is enabled by default.
#[rstest]
#[case("-development")]
#[case("-development=false")]
fn development_flag_of_the_public_watcher_is_a_usage_error(#[case] flag: &str) {
    let ran = command().arg(flag).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "");
}

#[tokio::test]
async fn an_address_in_use_is_a_failure() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let mut second = folder.command();
    second.env("WEBHOOK_PORT", running.webhook.to_string());
    let ran = second.output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let text = String::from_utf8(ran.stderr).unwrap();
    let expected = format!("failed to listen on [::]:{}", running.webhook);
    assert!(text.contains(&expected), "{text}");
}

#[tokio::test]
async fn plain_ports_serve_metrics_and_no_reviews() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let samples = running.samples().await;
    assert_eq!(samples.exact("watcher_kcp_requests_total"), Some(0.0));
    for port in [running.metrics, running.health] {
        assert_eq!(get(port, "/validate/kyma").await.unwrap().status, 404);
    }
}

/// Returns the number of events in the spool of a new process.
async fn spooled(folder: &Folder) -> Option<f64> {
    let running = Running::start(folder).await;
    running.samples().await.exact("watcher_outbox_events")
}

/// KCP refuses connections, and the process is killed between response and delivery.
#[tokio::test]
async fn answered_event_after_kill_9_is_still_in_the_spool() {
    let folder = Folder::new();
    let mut running = Running::start(&folder).await;
    for name in ["one", "two", "one"] {
        running.ask_until_spooled(&review(name)).await;
    }
    running.kill("KILL");
    assert_eq!(running.ended().await.code(), None, "killed");
    assert_eq!(spooled(&folder).await, Some(2.0));
}

#[tokio::test]
async fn sigterm_drains_and_the_spool_stays() {
    let folder = Folder::new();
    // The three requests after SIGTERM must arrive in this time.
    let mut running = Running::begin_with(folder.command_with_delay("10s"), &folder);
    running.ready().await;
    running.ask(&review("one")).await;
    running.kill("TERM");
    let unready = || async {
        let answer = get(running.health, "/readyz").await;
        answer.is_ok_and(|it| it.status == 503)
    };
    until("draining", PATIENCE, unready).await.unwrap();
    // The process serves until the end of the shutdown delay.
    running.ask(&review("two")).await;
    assert_eq!(get(running.health, "/healthz").await.unwrap().status, 200);
    assert_eq!(running.ended().await.code(), Some(0));
    assert_eq!(spooled(&folder).await, Some(2.0));
}

#[tokio::test]
async fn without_certificates_it_waits_unready_and_says_so() {
    let folder = Folder::new();
    std::fs::remove_file(folder.path("tls.crt")).unwrap();
    let running = Running::begin(&folder);
    let names_the_file = async || {
        let answer = get(running.health, "/readyz").await?;
        let named = answer.body.contains("TLS_CERT").then_some(answer.status);
        named.ok_or(std::io::Error::other(answer.body))
    };
    let status = until("a named file", PATIENCE, names_the_file).await;
    assert_eq!(status.unwrap(), 503);
    assert_eq!(get(running.health, "/healthz").await.unwrap().status, 200);
    folder.certify();
    running.ready().await;
    running.ask(&review("one")).await;
}

const EVENT: &str = "/v2/kyma/event";
const HEARTBEAT: &str = "/v2/kyma/event/heartbeat";

fn event(name: &str) -> Value {
    json!({
        "watched": {"Namespace": "kyma-system", "Name": name},
        "watchedGvk": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
    })
}

/// Admission, outbox, sender and heartbeats work together.
#[tokio::test]
async fn kcp_receives_heartbeats_before_a_change_two_events_after_it_and_a_last_heartbeat() {
    let folder = Folder::new();
    let kcp = Kcp::start(&folder).await;
    let mut command = folder.command();
    command
        .env("KCP_ADDR", kcp.address().to_string())
        .env("WATCHER_MANAGERS", "kyma")
        // An event that is sent later than this delay after its change needs no second event.
        .args(["--heartbeat-interval=1s", "--follow-up-delay=5s"]);
    let mut running = Running::begin_with(command, &folder);
    received(&kcp, HEARTBEAT, 1).await;
    let heartbeat: Value = serde_json::from_str(&kcp.bodies(HEARTBEAT)[0]).unwrap();
    assert_eq!(heartbeat["sequence"], 0);
    assert_eq!(heartbeat["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(kcp.bodies(EVENT).len(), 0);
    running.ask(&review("one")).await;
    received(&kcp, EVENT, 2).await;
    assert_eq!(kcp.bodies(EVENT).len(), 2);
    for body in kcp.bodies(EVENT) {
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body, event("one"));
    }
    let counted = || async {
        let delivered = running
            .samples()
            .await
            .exact("watcher_delivered_events_total");
        delivered == Some(2.0)
    };
    until("both counted", PATIENCE, counted).await.unwrap();
    // A port scanner, and an API server with a wrong caBundle.
    running.send_garbage().await;
    running.reject_certificate().await;
    let series = r#"watcher_server_tls_handshake_errors_total{server="webhook",reason="protocol"}"#;
    let both_failed = async || running.samples().await.exact(series) == Some(2.0);
    until("both handshakes", PATIENCE, both_failed)
        .await
        .unwrap();
    running.kill("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
    let last = Heartbeat::parse(kcp.bodies(HEARTBEAT).last().unwrap().as_bytes()).unwrap();
    assert!(last.ending, "{last:?}");
    assert_eq!((last.sequence, last.reviews_seen), (2, Some(1)));
    assert_eq!((last.spool_depth, last.follow_up_depth), (0, 0));
    assert_eq!(last.handshake_failures, Some(1));
}

/// Waits until `count` requests for `path` have arrived.
async fn received(kcp: &Kcp, path: &str, count: usize) {
    let came = || std::future::ready(kcp.bodies(path).len() >= count);
    until(path, PATIENCE, came).await.unwrap();
}

/// The next process delivers an event for which a killed process has sent a response.
#[tokio::test]
async fn spooled_event_after_a_restart_is_delivered() {
    let folder = Folder::new();
    let mut before = Running::start(&folder).await;
    before.ask_until_spooled(&review("one")).await;
    before.kill("KILL");
    before.ended().await;
    let kcp = Kcp::start(&folder).await;
    let mut command = folder.command();
    command.env("KCP_ADDR", kcp.address().to_string());
    let _running = Running::begin_with(command, &folder);
    received(&kcp, EVENT, 1).await;
    let body: Value = serde_json::from_str(&kcp.bodies(EVENT)[0]).unwrap();
    assert_eq!(body, event("one"));
}

#[tokio::test]
async fn with_delivery_mode_sync_kcp_has_the_event_before_the_answer() {
    let folder = Folder::new();
    let kcp = Kcp::start(&folder).await;
    let mut command = folder.command();
    command
        .env("KCP_ADDR", kcp.address().to_string())
        .env("WATCHER_DELIVERY_MODE", "sync");
    let running = Running::begin_with(command, &folder);
    running.ready().await;
    running.ask(&review("one")).await;
    assert_eq!(kcp.bodies(EVENT).len(), 1);
}
