use std::sync::Arc;

use component_base::telemetry::error_chain;
use component_base::watch::WatchMetrics;
use kube::api::Preconditions;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Client, Config};
use policy::copies::RemovalCause;
use rstest::rstest;
use serde_json::{Value, json};
use wiremock::matchers::{body_json, body_partial_json, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::super::state::{CopyAction, CopyTask};
use super::super::writer::{WriteError, WriteResult};
use super::{NAME, ONE, TWO, TYPE, copy};
use crate::pull_secret_sync::{PullSecretMetrics, PullSecretSync};
use crate::snapshot::{SecretContent, SnapshotStore};

const SECRET: &str = "/api/v1/namespaces/a/secrets/registry-credentials";

fn writer(server: &MockServer) -> PullSecretSync {
    let client = Client::try_from(Config::new(server.uri().parse().unwrap())).unwrap();
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

fn source() -> Arc<SecretContent> {
    let docker_config = br#"{"auths":{"one":{}}}"#.to_vec();
    Arc::new(SecretContent { docker_config })
}

fn identity() -> Preconditions {
    Preconditions {
        uid: Some("uid-a".to_owned()),
        resource_version: Some("5".to_owned()),
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

fn status(code: u16, reason: &str, details: &Value) -> ResponseTemplate {
    ResponseTemplate::new(code).set_body_json(json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("no: {ONE}"), "details": details,
    }))
}

async fn answering(verb: &str, answer: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    let mock = Mock::given(method(verb)).and(path(SECRET));
    mock.respond_with(answer).expect(1).mount(&server).await;
    server
}

fn copied() -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(copy("a", ONE))
}

#[tokio::test]
async fn a_copy_is_applied_whole_by_our_manager_with_force() {
    let server = MockServer::start().await;
    Mock::given(method("PATCH"))
        .and(path(SECRET))
        .and(query_param("fieldManager", "rt-bootstrapper"))
        .and(query_param("force", "true"))
        .and(header("content-type", "application/apply-patch+yaml"))
        .and(body_json(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": NAME,
                "namespace": "a",
                "labels": {"rt-bootstrapper.kyma-project.io/pull-secret-copy": "true"},
            },
            "type": TYPE,
            "data": {".dockerconfigjson": ONE},
        })))
        .respond_with(copied())
        .expect(1)
        .mount(&server)
        .await;
    let done = writer(&server)
        .execute(&task(CopyAction::Update(source())))
        .await;
    let Ok(WriteResult::Written(Some(state))) = done else {
        panic!("{done:?}");
    };
    assert_eq!(state.identity, identity());
}

fn removal_task() -> CopyTask {
    task(CopyAction::Remove(identity(), RemovalCause::SourceDeleted))
}

fn removal() -> Value {
    json!({"preconditions": {"uid": "uid-a", "resourceVersion": "5"}})
}

#[tokio::test]
async fn a_removal_names_uid_and_version() {
    let server = MockServer::start().await;
    Mock::given(method("DELETE"))
        .and(path(SECRET))
        .and(body_partial_json(removal()))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"kind": "Status"})))
        .expect(1)
        .mount(&server)
        .await;
    let done = writer(&server).execute(&removal_task()).await;
    assert!(matches!(done, Ok(WriteResult::Written(None))), "{done:?}");
}

#[tokio::test]
async fn what_is_gone_already_is_removed() {
    let server = answering("DELETE", status(404, "NotFound", &json!(null))).await;
    let done = writer(&server).execute(&removal_task()).await;
    assert!(matches!(done, Ok(WriteResult::Written(None))), "{done:?}");
}

#[tokio::test]
async fn what_another_client_put_in_its_place_is_neither_removed_nor_overwritten() {
    let server = answering("DELETE", status(409, "Conflict", &json!(null))).await;
    let recreate = task(CopyAction::Recreate(identity(), source()));
    let error = writer(&server).execute(&recreate).await.unwrap_err();
    assert!(matches!(error, WriteError::Changed), "{error:?}");
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}

#[tokio::test]
async fn another_shape_is_removed_and_then_applied() {
    let server = answering(
        "DELETE",
        ResponseTemplate::new(200).set_body_json(json!({"kind": "Status"})),
    )
    .await;
    let mock = Mock::given(method("PATCH")).and(path(SECRET));
    mock.respond_with(copied()).expect(1).mount(&server).await;
    let recreate = task(CopyAction::Recreate(identity(), source()));
    let done = writer(&server).execute(&recreate).await;
    assert!(
        matches!(done, Ok(WriteResult::Written(Some(_)))),
        "{done:?}"
    );
    let requests = server.received_requests().await.unwrap();
    let methods: Vec<String> = requests.iter().map(|it| it.method.to_string()).collect();
    assert_eq!(methods, ["DELETE", "PATCH"]);
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
#[case::no_secret(ResponseTemplate::new(200).set_body_string(format!("\"{ONE}\"")), "unreadable")]
#[case::an_admission_plugin_changed_it(
    ResponseTemplate::new(200).set_body_json(copy("a", TWO)),
    "not_taken"
)]
#[tokio::test]
async fn a_failure_says_what_it_is_and_nothing_of_the_value(
    #[case] answer: ResponseTemplate,
    #[case] kind: &str,
) {
    let server = answering("PATCH", answer).await;
    let result = writer(&server)
        .execute(&task(CopyAction::Update(source())))
        .await;
    let error = result.unwrap_err();
    assert_eq!(error.reason(), kind);
    // Texts of authorizers and quotas are an exception, because they contain only names and counts.
    let text = format!("{error:?} {}", error_chain(&error));
    assert!(kind == "forbidden" || !text.contains(ONE), "{text}");
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error_of_its_own() {
    let server = MockServer::start().await;
    let writer = writer(&server);
    let uri = server.uri();
    drop(server);
    let config = Config::new(uri.replace("127.0.0.1", "127.0.0.2").parse().unwrap());
    let writer = PullSecretSync {
        client: Client::try_from(config).unwrap(),
        ..writer
    };
    let result = writer.execute(&task(CopyAction::Update(source()))).await;
    assert_eq!(result.unwrap_err().reason(), "transport");
}

#[tokio::test]
async fn a_foreign_secret_is_reported_where_it_is() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/apis/events.k8s.io/v1/namespaces/a/events"))
        .and(body_partial_json(json!({
            "reason": "PullSecretConflict",
            "type": "Warning",
            "regarding": {"kind": "Secret", "namespace": "a", "name": NAME, "uid": "uid-a"},
            "reportingController": "rt-bootstrapper",
        })))
        .respond_with(ResponseTemplate::new(201).set_body_json(json!({
            "metadata": {"name": "e", "namespace": "a"}, "eventTime": null,
        })))
        .expect(1)
        .mount(&server)
        .await;
    let done = writer(&server)
        .execute(&task(CopyAction::Report(identity().uid)))
        .await;
    assert!(matches!(done, Ok(WriteResult::Reported)), "{done:?}");
}
