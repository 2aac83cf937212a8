use std::sync::Arc;

use component_base::telemetry::error_chain;
use component_base::watch::WatchMetrics;
use kube::api::Preconditions;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Client, Config};
use policy::copies::RemovalCause;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;

use super::super::state::{CopyAction, CopyTask};
use super::super::writer::{WriteError, WriteResult};
use super::{NAME, ONE, TWO, TYPE, copy, foreign};
use crate::pull_secret_sync::{PullSecretMetrics, PullSecretSync};
use crate::snapshot::{SecretContent, SnapshotStore};

/// Returns a server that has the Namespace, and a copy if it is given.
fn server(secret: Option<&Value>) -> ApiServer {
    let server = ApiServer::new();
    server.namespace("a");
    if let Some(secret) = secret {
        server.put(secret);
    }
    server
}

fn writer(client: Client) -> PullSecretSync {
    let reporter = Reporter {
        controller: "rt-bootstrapper".to_owned(),
        instance: Some("pod-1".to_owned()),
    };
    PullSecretSync {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        snapshots: SnapshotStore::default(),
        metrics: PullSecretMetrics::default(),
        watches: WatchMetrics::default(),
        product_namespace: "kyma-system".to_owned(),
        page: super::super::page_permit(),
    }
}

async fn execute(server: &ApiServer, action: CopyAction) -> Result<WriteResult, WriteError> {
    writer(server.client()).execute(&task(action)).await
}

fn source() -> Arc<SecretContent> {
    let docker_config = br#"{"auths":{"one":{}}}"#.to_vec();
    Arc::new(SecretContent { docker_config })
}

/// Returns UID and version of the stored Secret.
fn identity(server: &ApiServer) -> Preconditions {
    let secret = server.get("secrets", "a", NAME).unwrap();
    let text = |key: &str| secret["metadata"][key].as_str().map(str::to_owned);
    Preconditions {
        uid: text("uid"),
        resource_version: text("resourceVersion"),
    }
}

fn task(action: CopyAction) -> CopyTask {
    CopyTask {
        secret: NAME.to_owned(),
        is_former: false,
        namespace: "a".to_owned(),
        action,
    }
}

fn status(code: u16, reason: &str, details: &Value) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("no: {ONE}"), "details": details,
    });
    (code, status)
}

#[tokio::test]
async fn a_copy_is_applied_whole_by_our_manager_with_force() {
    let server = server(None);
    let done = execute(&server, CopyAction::Update(source())).await;
    let Ok(WriteResult::Written(Some(state))) = done else {
        panic!("{done:?}");
    };
    assert_eq!(state.identity, identity(&server));
    let [applied] = &server.requests_of("apply secrets a/registry-credentials")[..] else {
        panic!("{:?}", server.writes());
    };
    for parameter in ["fieldManager=rt-bootstrapper", "force=true"] {
        assert!(applied.uri.contains(parameter), "{}", applied.uri);
    }
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": NAME,
            "namespace": "a",
            "labels": {"rt-bootstrapper.kyma-project.io/pull-secret-copy": "true"},
        },
        "type": TYPE,
        "data": {".dockerconfigjson": ONE},
    });
    assert_eq!(applied.body, expected);
}

fn removal(identity: Preconditions) -> CopyAction {
    CopyAction::Remove(identity, RemovalCause::SourceDeleted)
}

#[tokio::test]
async fn a_removal_names_uid_and_version() {
    let server = server(Some(&copy("a", ONE)));
    let identity = identity(&server);
    let done = execute(&server, removal(identity.clone())).await;
    assert!(matches!(done, Ok(WriteResult::Written(None))), "{done:?}");
    let [deleted] = &server.requests_of("delete secrets a/registry-credentials")[..] else {
        panic!("{:?}", server.writes());
    };
    assert_eq!(deleted.body["preconditions"], json!(identity));
    assert_eq!(server.get("secrets", "a", NAME), None);
}

#[tokio::test]
async fn what_is_gone_already_is_removed() {
    let server = server(Some(&copy("a", ONE)));
    let identity = identity(&server);
    server.remove("secrets", "a", NAME);
    let done = execute(&server, removal(identity)).await;
    assert!(matches!(done, Ok(WriteResult::Written(None))), "{done:?}");
}

#[tokio::test]
async fn what_another_client_put_in_its_place_is_neither_removed_nor_overwritten() {
    let server = server(Some(&copy("a", TWO)));
    let earlier = identity(&server);
    server.put(&foreign("a"));
    let error = execute(&server, CopyAction::Recreate(earlier, source())).await;
    let error = error.unwrap_err();
    assert!(matches!(error, WriteError::Changed), "{error:?}");
    assert_eq!(server.received(), 1);
}

#[tokio::test]
async fn another_shape_is_removed_and_then_applied() {
    let mut other = copy("a", ONE);
    other["type"] = json!("Opaque");
    let server = server(Some(&other));
    let recreate = CopyAction::Recreate(identity(&server), source());
    let done = execute(&server, recreate).await;
    assert!(
        matches!(done, Ok(WriteResult::Written(Some(_)))),
        "{done:?}"
    );
    let writes = ["delete", "apply"].map(|it| format!("{it} secrets a/{NAME}"));
    assert_eq!(server.writes(), writes);
}

#[rstest]
#[case::namespace_gone(status(404, "NotFound", &json!(null)), "namespace_gone")]
#[case::namespace_terminating(
    status(403, "Forbidden", &json!({"causes": [{"reason": "NamespaceTerminating"}]})),
    "namespace_gone"
)]
#[case::forbidden(status(403, "Forbidden", &json!(null)), "forbidden")]
#[case::conflict(status(409, "Conflict", &json!(null)), "changed")]
#[case::invalid(status(422, "Invalid", &json!(null)), "refused")]
#[case::broken(status(500, "InternalError", &json!(null)), "refused")]
#[case::no_secret((200, json!(ONE)), "unreadable")]
#[case::an_admission_plugin_changed_it((200, copy("a", TWO)), "not_taken")]
#[tokio::test]
async fn a_failure_says_what_it_is_and_nothing_of_the_value(
    #[case] (code, answer): (u16, Value),
    #[case] kind: &str,
) {
    let server = server(None);
    let fault = server.fault("apply secrets").answer(code, answer);
    let result = execute(&server, CopyAction::Update(source())).await;
    assert_eq!(fault.hits(), 1);
    let error = result.unwrap_err();
    assert_eq!(error.reason(), kind);
    // Texts of authorizers and quotas are an exception, because they contain only names and counts.
    let text = format!("{error:?} {}", error_chain(&error));
    assert!(kind == "forbidden" || !text.contains(ONE), "{text}");
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error_of_its_own() {
    // No test listens on this address.
    let config = Config::new("http://127.0.0.2:1".parse().unwrap());
    let writer = writer(Client::try_from(config).unwrap());
    let result = writer.execute(&task(CopyAction::Update(source()))).await;
    assert_eq!(result.unwrap_err().reason(), "transport");
}

#[tokio::test]
async fn a_foreign_secret_is_reported_where_it_is() {
    let server = server(Some(&foreign("a")));
    let uid = identity(&server).uid;
    let done = execute(&server, CopyAction::Report(uid.clone())).await;
    assert!(matches!(done, Ok(WriteResult::Reported)), "{done:?}");
    let [event] = &server.requests_of("create events")[..] else {
        panic!("{:?}", server.writes());
    };
    assert!(
        event
            .uri
            .starts_with("/apis/events.k8s.io/v1/namespaces/a/events")
    );
    let (body, regarding) = (&event.body, &event.body["regarding"]);
    let fields = ["reason", "type", "reportingController"].map(|it| &body[it]);
    assert_eq!(fields, ["PullSecretConflict", "Warning", "rt-bootstrapper"]);
    let fields = ["kind", "namespace", "name", "uid"].map(|it| &regarding[it]);
    assert_eq!(fields, ["Secret", "a", NAME, &uid.unwrap()]);
}
