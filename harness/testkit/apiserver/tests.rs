//! Tests of the server with typed clients of kube, without sockets.

use std::pin::pin;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use rstest::rstest;
use serde_json::json;

use super::*;

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.namespace("a");
    server
}

/// A client for ConfigMaps in Namespace `a`.
#[derive(Clone)]
struct Maps(Api<ConfigMap>);

impl Maps {
    fn of(server: &ApiServer) -> Self {
        Self(Api::namespaced(server.client(), "a"))
    }

    async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.0.create(&PostParams::default(), &map).await
    }

    /// Sends a merge patch for the ConfigMap `x`.
    async fn merge(&self, change: Value) -> kube::Result<ConfigMap> {
        let patch = Patch::Merge(change);
        self.0.patch("x", &PatchParams::default(), &patch).await
    }
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_where_a_list_ended_and_expires() {
    let server = server();
    let maps = Maps::of(&server);
    maps.create("x").await.unwrap();
    let list = maps.0.list(&ListParams::default()).await.unwrap();
    let seen = list.metadata.resource_version.unwrap();
    maps.merge(json!({"data": {"a": "b"}})).await.unwrap();
    let events = async |labels: &str, since: &str, count: usize| {
        let params = WatchParams::default().labels(labels).timeout(10);
        let stream = maps.0.watch(&params, since).await.unwrap();
        let events: Vec<WatchEvent<ConfigMap>> = stream.take(count).try_collect().await.unwrap();
        events
    };
    let [WatchEvent::Added(_)] = &events("!other", "0", 1).await[..] else {
        panic!("what is there comes first");
    };
    // The stream ends after its timeout without events.
    assert!(events("other", "0", 1).await.is_empty());

    let open = maps.0.watch(&WatchParams::default(), &seen).await.unwrap();
    let mut open = pin!(open);
    let modified = open.next().await.unwrap().unwrap();
    assert!(matches!(modified, WatchEvent::Modified(_)));
    assert!(open.next().now_or_never().is_none());
    server.store().expire_watches();
    let is_end = |event: &WatchEvent<_>| matches!(event, WatchEvent::Error(it) if it.code == 410);
    assert!(is_end(&open.next().await.unwrap().unwrap()));
    assert!(is_end(&events("", &seen, 1).await[0]));
}

#[tokio::test]
async fn lists_come_in_pages() {
    let server = server();
    let maps = Maps::of(&server);
    for name in ["x", "y", "z"] {
        maps.create(name).await.unwrap();
    }
    let names = async |params: ListParams| {
        let list = maps.0.list(&params).await.unwrap();
        let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        (names.concat(), list.metadata.continue_)
    };
    let two = ListParams::default().limit(2);
    let (first, token) = names(two.clone()).await;
    assert_eq!(first, "xy");
    let second = names(two.continue_token(&token.unwrap())).await;
    assert_eq!(second, ("z".to_owned(), None));
    let partial = maps.0.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(partial.items[2].name_any(), "z");
    server.behave(|it| it.page = 1);
    assert_eq!(names(ListParams::default()).await.0, "x");
}

#[tokio::test]
async fn rights_are_checked_and_shown() {
    let server = server();
    let role = json!({"kind": "ClusterRole", "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"], "verbs": ["get", "list"]},
    ]});
    server.behave(|it| it.rights = Rights::of_roles([&role]));
    let Maps(api) = Maps::of(&server);
    assert_eq!(code(api.get("y").await), 403);
    assert_eq!(code(api.get("x").await), 404);
    assert_eq!(code(api.list(&ListParams::default()).await), 403);
    let one = ListParams::default().fields("metadata.name=x");
    assert!(api.list(&one).await.is_ok());
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "group": "", "resource": "configmaps", "name": "x"}},
    });
    let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews = Api::all(server.client());
    let answer = reviews.create(&PostParams::default(), &review).await;
    assert!(answer.unwrap().status.unwrap().allowed);
}

#[rstest]
#[case(false, [2, 2, 2])]
// Pods of an earlier template continue to run while the new Pods are not ready.
#[case(true, [3, 1, 2])]
#[tokio::test]
async fn deployments_roll_out_as_the_server_has_it(#[case] stuck: bool, #[case] after: [i32; 3]) {
    let server = server();
    server.behave(|it| it.stuck = stuck);
    server.put(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "a"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}},
    }));
    let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(server.client(), "a");
    let status = api.get("web").await.unwrap().status.unwrap();
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(status.available_replicas, Some(if stuck { 0 } else { 2 }));
    let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(template));
    let patched = api.patch("web", &params, &patch).await.unwrap();
    let status = patched.status.unwrap();
    let replicas = [
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
    ];
    assert_eq!(replicas, after.map(Some));
    assert_eq!(status.observed_generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn faults_meet_the_requests_that_they_name() {
    let server = server();
    let maps = Maps::of(&server);
    let create = async |name: &str| maps.create(name).await;
    let unavailable = server.fault("create configmaps a/x").times(1);
    let unavailable = unavailable.status_after(503, 7);
    assert_eq!(code(create("x").await), 503);
    create("x").await.unwrap();
    assert_eq!(unavailable.hits(), 1);

    let _lost = server.fault("create configmaps a/lost").lose_answers();
    let silent = tokio::time::timeout(Duration::from_mins(1), create("lost")).await;
    assert!(silent.is_err() && server.get("configmaps", "a", "lost").is_some());
    let _reset = server.fault("create configmaps a/reset").reset();
    let reset = create("reset").await;
    assert!(matches!(reset, Err(kube::Error::Service(_))));
    assert!(server.get("configmaps", "a", "reset").is_none());

    let racing = server.fault("update configmaps").times(1).before(|server| {
        server.edit("configmaps", ("a", "x"), |it| {
            it["data"] = json!({"by": "another writer"});
        });
    });
    let stored = maps.0.get("x").await.unwrap();
    let replaced = maps.0.replace("x", &PostParams::default(), &stored).await;
    assert_eq!(code(replaced), 409);
    racing.stop();

    let hold = server.fault("get configmaps a/x").hold();
    let mut reading = pin!(maps.0.get("x"));
    let waiting = tokio::time::timeout(Duration::from_mins(1), &mut reading);
    assert!(waiting.await.is_err());
    assert_eq!(hold.hits(), 1);
    drop(hold);
    reading.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_are_recorded() {
    let server = server();
    server.delay_writes(Duration::from_millis(20));
    let maps = Maps::of(&server);
    let writes = ["x", "y", "x"].map(|name| maps.create(name));
    let _ = futures::future::join_all(writes).await;
    assert_eq!(server.most_at_once("create configmaps"), 3);
    let writes = ["x", "y", "x"].map(|name| format!("create configmaps a/{name}"));
    assert_eq!(server.writes(), writes);
    let pods: Api<Pod> = Api::all(server.client());
    pods.list(&ListParams::default()).await.unwrap();
    let recorded = server.take_requests();
    let of = |it: &Recorded| (it.asked.to_string(), it.status, it.changed);
    assert_eq!(of(&recorded[2]), (writes[2].clone(), Some(409), false));
    assert_eq!(of(&recorded[3]), ("list pods".to_owned(), Some(200), false));
    assert!(server.requests().is_empty());
    server.expect_token("secret");
    assert_eq!(code(maps.0.get("x").await), 401);
}

#[test]
fn servers_that_hold_the_same_share_it() {
    let (common, behavior) = (Arc::<store::Common>::default(), Arc::<Behavior>::default());
    let path = "/api/v1/namespaces/default/configmaps/x";
    let target = request::Target::parse(path, &kinds::BUILTIN).unwrap();
    let query = request::Query {
        field_manager: "m".to_owned(),
        ..Default::default()
    };
    let body = br#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}"#;
    let [one, two] = [0, 1].map(|number| {
        let store = Store::new(Arc::clone(&common), number, Arc::clone(&behavior));
        assert!(store.apply(&target, &query, body).unwrap().changed);
        store.inner().live(&target).unwrap()
    });
    assert!(Arc::ptr_eq(&one, &two));
}

#[tokio::test]
async fn an_administrator_deletes_as_clients_do_and_chooses_the_time() {
    let server = server();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "a", "finalizers": ["a/b"]},
    });
    server.put(&object);
    let before = server.get("configmaps", "a", "x").unwrap();
    assert_eq!(before["metadata"].get("managedFields"), None, "no owners");
    server.delete("configmaps", "a", "x");
    server.delete("configmaps", "a", "none");
    let kept = server.get("configmaps", "a", "x").unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_string());
    server.edit("configmaps", ("a", "x"), |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    });
    let moved = server.get("configmaps", "a", "x").unwrap();
    let versions = [&before, &kept, &moved].map(|it| &it["metadata"]["resourceVersion"]);
    assert!(versions[0] != versions[1] && versions[1] != versions[2]);
    let maps = Maps::of(&server);
    let since = before["metadata"]["resourceVersion"].as_str().unwrap();
    let seen = maps.0.watch(&WatchParams::default(), since).await.unwrap();
    let seen: Vec<WatchEvent<ConfigMap>> = seen.take(2).try_collect().await.unwrap();
    let WatchEvent::Modified(last) = &seen[1] else {
        panic!("{seen:?}");
    };
    let time = last.metadata.deletion_timestamp.as_ref().unwrap();
    assert_eq!(time.0.to_string(), "2026-01-02T03:04:05Z");
    let release = json!({"metadata": {"finalizers": null}});
    maps.merge(release).await.unwrap();
    assert_eq!(server.get("configmaps", "a", "x"), None);
    assert_eq!(server.count("patch configmaps a/x"), 1);
    let count = server.count("delete");
    assert_eq!(count, 0, "an administrator's request is not recorded");
    server.put(&object);
    server.edit("configmaps", ("a", "x"), |it| {
        it["metadata"]["finalizers"] = json!([]);
    });
    server.delete("namespaces", "", "a");
    assert_eq!(server.get("configmaps", "a", "x"), None);
}

#[tokio::test]
async fn an_admission_plugin_may_take_an_annotation_away() {
    let server = server();
    let maps = Maps::of(&server);
    maps.create("x").await.unwrap();
    server.behave(|it| it.stripped = Some("a/b"));
    let change = json!({"metadata": {"annotations": {"a/b": "1", "c": "2"}}});
    let annotations = maps.merge(change).await.unwrap().metadata.annotations;
    assert_eq!(json!(annotations), json!({"c": "2"}));
}
