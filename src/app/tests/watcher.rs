//! Role `watcher`, judged from outside: a process, its ports, its end.
#![cfg(test)]

#[path = "watcher/exhaustion.rs"]
mod exhaustion;
#[path = "watcher/kcp.rs"]
mod kcp;
#[path = "watcher/process.rs"]
mod process;

use rstest::rstest;
use serde_json::{Value, json};

use self::kcp::Kcp;
use self::process::{Folder, Running, command, plain};

/// A review of a Kyma that is created.
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

/// The public watcher's exit status is 0 here, so that a supervisor takes it for done.
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

/// The public watcher's `-development`, which is on where nobody switches it off.
#[rstest]
#[case("-development")]
#[case("-development=false")]
fn development_flag_of_the_public_watcher_is_a_usage_error(#[case] flag: &str) {
    let ran = command().arg(flag).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "");
}

#[test]
fn an_address_in_use_is_a_failure() {
    let folder = Folder::new();
    let running = Running::start(&folder);
    let mut second = folder.command();
    second.env("WEBHOOK_PORT", running.webhook.to_string());
    let ran = second.output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let text = String::from_utf8(ran.stderr).unwrap();
    let expected = format!("failed to listen on [::]:{}", running.webhook);
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn plain_ports_serve_metrics_and_no_reviews() {
    let folder = Folder::new();
    let running = Running::start(&folder);
    let (status, text) = plain(running.metrics, "/metrics");
    assert_eq!(status, 200);
    assert!(text.contains("\nwatcher_kcp_requests_total 0\n"), "{text}");
    for port in [running.metrics, running.health] {
        assert_eq!(plain(port, "/validate/kyma").0, 404);
    }
}

/// Between answer and delivery: KCP refuses connections, and the process is killed.
#[test]
fn answered_event_after_kill_9_is_still_in_the_spool() {
    let folder = Folder::new();
    let mut running = Running::start(&folder);
    for name in ["one", "two", "one"] {
        running.ask_until_spooled(&review(name));
    }
    running.kill("KILL");
    assert_eq!(running.ended().code(), None, "killed");
    let again = Running::start(&folder);
    let (_, text) = plain(again.metrics, "/metrics");
    assert!(text.contains("\nwatcher_outbox_events 2"), "{text}");
}

#[test]
fn sigterm_drains_and_the_spool_stays() {
    let folder = Folder::new();
    let mut running = Running::start(&folder);
    running.ask(&review("one"));
    running.kill("TERM");
    running.until("draining", |it| plain(it.health, "/readyz").0 == 503);
    // For as long as it lingers it serves.
    running.ask(&review("two"));
    assert_eq!(plain(running.health, "/healthz").0, 200);
    assert_eq!(running.ended().code(), Some(0));
    let again = Running::start(&folder);
    let (_, text) = plain(again.metrics, "/metrics");
    assert!(text.contains("\nwatcher_outbox_events 2"), "{text}");
}

#[test]
fn without_certificates_it_waits_unready_and_says_so() {
    let folder = Folder::new();
    std::fs::remove_file(folder.path("tls.crt")).unwrap();
    let running = Running::begin(&folder);
    running.until("answering", |it| {
        plain(it.health, "/readyz").1.contains("TLS_CERT")
    });
    assert_eq!(plain(running.health, "/readyz").0, 503);
    assert_eq!(plain(running.health, "/healthz").0, 200);
    folder.certify();
    running.until("ready", |it| plain(it.health, "/readyz").0 == 200);
    running.ask(&review("one"));
}

const EVENT: &str = "/v2/kyma/event";
const HEARTBEAT: &str = "/v2/kyma/event/heartbeat";

fn event(name: &str) -> Value {
    json!({
        "watched": {"Namespace": "kyma-system", "Name": name},
        "watchedGvk": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
    })
}

/// All parts are joined: edge, outbox, sender, heartbeats.
#[test]
fn kcp_hears_of_a_change_twice_and_of_calm_before_it() {
    let folder = Folder::new();
    let kcp = Kcp::start(&folder);
    let mut command = folder.command();
    command
        .env("KCP_ADDR", kcp.address.to_string())
        .env("WATCHER_MANAGERS", "kyma")
        .args(["--heartbeat-interval=1s", "--follow-up-delay=1s"]);
    let running = Running::begin_with(command, &folder);
    running.until("heard of", |_| !kcp.bodies(HEARTBEAT).is_empty());
    let heartbeat: Value = serde_json::from_str(&kcp.bodies(HEARTBEAT)[0]).unwrap();
    assert_eq!(heartbeat["sequence"], 0);
    assert_eq!(heartbeat["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(kcp.bodies(EVENT).len(), 0);
    running.ask(&review("one"));
    running.until("confirmed", |_| kcp.bodies(EVENT).len() == 2);
    for body in kcp.bodies(EVENT) {
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body, event("one"));
    }
    running.until("counted", |it| {
        let (_, text) = plain(it.metrics, "/metrics");
        text.contains("\nwatcher_delivered_events_total 2\n")
    });
}

/// What a killed process has answered, the next one delivers.
#[test]
fn spooled_event_after_a_restart_is_delivered() {
    let folder = Folder::new();
    let mut before = Running::start(&folder);
    before.ask_until_spooled(&review("one"));
    before.kill("KILL");
    before.ended();
    let kcp = Kcp::start(&folder);
    let mut command = folder.command();
    command.env("KCP_ADDR", kcp.address.to_string());
    let running = Running::begin_with(command, &folder);
    running.until("delivered", |_| !kcp.bodies(EVENT).is_empty());
    let body: Value = serde_json::from_str(&kcp.bodies(EVENT)[0]).unwrap();
    assert_eq!(body, event("one"));
}

#[test]
fn with_notify_sync_kcp_knows_before_the_answer() {
    let folder = Folder::new();
    let kcp = Kcp::start(&folder);
    let mut command = folder.command();
    command
        .env("KCP_ADDR", kcp.address.to_string())
        .env("WATCHER_DELIVERY_MODE", "sync");
    let running = Running::begin_with(command, &folder);
    running.until("ready", |it| plain(it.health, "/readyz").0 == 200);
    running.ask(&review("one"));
    assert_eq!(kcp.bodies(EVENT).len(), 1);
}
