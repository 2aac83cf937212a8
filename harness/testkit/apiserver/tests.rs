//! The server as its clients see it: typed clients of kube, without sockets.

use std::pin::pin;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use rstest::rstest;
use serde_json::json;

use super::respond::Call;
use super::*;

static WIDGETS: Kind = Kind::custom("example.test", "v1alpha1", "widgets", "Widget");

fn server() -> ApiServer {
    let server = ApiServer::with_kinds([&WIDGETS]);
    server.namespace("a");
    server
}

/// A client of the ConfigMaps in Namespace `a`.
#[derive(Clone)]
struct Maps(Api<ConfigMap>);

impl Maps {
    fn of(server: &ApiServer) -> Self {
        Self(Api::namespaced(server.client(), "a"))
    }

    async fn create(&self, name: &str, data: Value) -> kube::Result<ConfigMap> {
        self.0
            .create(&PostParams::default(), &map(name, &data))
            .await
    }

    async fn replace(&self, object: &ConfigMap) -> kube::Result<ConfigMap> {
        let name = object.name_any();
        self.0.replace(&name, &PostParams::default(), object).await
    }

    /// Merges into the ConfigMap `x`.
    async fn merge(&self, change: Value) -> kube::Result<ConfigMap> {
        let patch = Patch::Merge(change);
        self.0.patch("x", &PatchParams::default(), &patch).await
    }

    async fn apply(&self, manager: &str, force: bool, data: Value) -> kube::Result<ConfigMap> {
        let mut params = PatchParams::apply(manager);
        params.force = force;
        let mut object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
        if !data.is_null() {
            object["data"] = data;
        }
        self.0.patch("x", &params, &Patch::Apply(&object)).await
    }

    /// Whether it was removed at once.
    async fn delete(&self, params: &DeleteParams) -> kube::Result<bool> {
        Ok(self.0.delete("x", params).await?.is_right())
    }
}

fn map(name: &str, data: &Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn writes_have_the_optimistic_lock_of_an_api_server() {
    let server = server();
    let maps = Maps::of(&server);
    let first = maps.create("x", json!({"k": "1"})).await.unwrap();
    assert_eq!(code(maps.create("x", json!({})).await), 409);
    let mut second = first.clone();
    second.data = map("x", &json!({"k": "2"})).data;
    let replaced = maps.replace(&second).await.unwrap();
    assert_ne!(replaced.resource_version(), first.resource_version());
    assert_eq!(code(maps.replace(&second).await), 409);
    let idle = maps.replace(&replaced).await.unwrap();
    assert_eq!(idle.resource_version(), replaced.resource_version());

    let change = |version: Option<String>| json!({"metadata": {"resourceVersion": version}, "data": {"k": "3"}});
    assert_eq!(
        code(maps.merge(change(first.resource_version())).await),
        409
    );
    let patched = maps.merge(change(None)).await.unwrap();
    assert_eq!(patched.data.unwrap()["k"], "3");

    let other = DeleteParams::default().preconditions(Preconditions {
        uid: Some("other".into()),
        ..Default::default()
    });
    assert_eq!(code(maps.delete(&other).await), 409);
    assert!(maps.delete(&DeleteParams::default()).await.unwrap());
    assert_eq!(code(maps.0.get("x").await), 404);
    let elsewhere = Maps(Api::namespaced(server.client(), "b"));
    assert_eq!(code(elsewhere.create("x", json!({})).await), 404);
}

#[tokio::test]
async fn appliers_own_their_fields() {
    let maps = Maps::of(&server());
    let first = json!({"k": "1", "gone": "1"});
    maps.apply("one", false, first).await.unwrap();
    assert_eq!(code(maps.apply("two", false, json!({"k": "2"})).await), 409);
    maps.apply("two", true, json!({"k": "2"})).await.unwrap();
    let after = maps.apply("one", false, Value::Null).await.unwrap();
    assert_eq!(json!(after.data), json!({"k": "2"}));
    let owners = after.metadata.managed_fields.unwrap();
    let owners: Vec<_> = owners.iter().map(|it| it.manager.as_deref()).collect();
    assert_eq!(owners, [Some("two")]);
}

#[tokio::test]
async fn status_is_a_resource_of_its_own() {
    let kind = GroupVersionKind::gvk("example.test", "v1alpha1", "Widget");
    let api: Api<DynamicObject> =
        Api::namespaced_with(server().client(), "a", &ApiResource::from_gvk(&kind));
    let widget = json!({
        "apiVersion": "example.test/v1alpha1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": 1}, "status": {"ready": true},
    });
    let widget: DynamicObject = serde_json::from_value(widget).unwrap();
    let created = api.create(&PostParams::default(), &widget).await.unwrap();
    assert_eq!(
        created.data,
        json!({"spec": {"size": 1}}),
        "without the status"
    );
    assert_eq!(created.metadata.generation, Some(1));
    let status = json!({
        "apiVersion": "example.test/v1alpha1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": 7}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let (params, patch) = (PatchParams::apply("controller"), Patch::Apply(&status));
    let after = api.patch_status("w", &params, &patch).await.unwrap();
    assert_eq!(after.data["spec"]["size"], 1);
    assert_eq!(after.data["status"]["conditions"][0]["status"], "True");
    assert_eq!(after.metadata.generation, Some(1));
    let entries = after.metadata.managed_fields.unwrap();
    assert!(
        entries
            .iter()
            .any(|it| it.subresource.as_deref() == Some("status"))
    );
    // A custom resource must be replaced in a version.
    assert_eq!(
        code(api.replace("w", &PostParams::default(), &widget).await),
        422
    );
}

#[tokio::test]
async fn finalizers_keep_what_is_deleted() {
    let maps = Maps::of(&server());
    maps.create("x", json!({})).await.unwrap();
    let kept = json!({"metadata": {"finalizers": ["a/b"]}});
    maps.merge(kept).await.unwrap();
    assert!(!maps.delete(&DeleteParams::default()).await.unwrap());
    assert!(
        maps.0
            .get("x")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    assert!(!maps.delete(&DeleteParams::default()).await.unwrap());
    let release = json!({"metadata": {"finalizers": null}});
    maps.merge(release).await.unwrap();
    assert_eq!(code(maps.0.get("x").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_where_a_list_ended_and_expires() {
    let server = server();
    let maps = Maps::of(&server);
    maps.create("x", json!({})).await.unwrap();
    let list = maps.0.list(&ListParams::default()).await.unwrap();
    let seen = list.metadata.resource_version.unwrap();
    for value in [json!("yes"), Value::Null] {
        let change = json!({"metadata": {"labels": {"chosen": value}}});
        maps.merge(change).await.unwrap();
    }
    let kinds = async |labels: &str, since: &str, count: usize| {
        let params = WatchParams::default().labels(labels).timeout(10);
        let stream = maps.0.watch(&params, since).await.unwrap();
        let events: Vec<WatchEvent<ConfigMap>> = stream.take(count).try_collect().await.unwrap();
        let name = |event: &WatchEvent<ConfigMap>| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        };
        events.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(kinds("", &seen, 2).await, ["modified", "modified"]);
    assert_eq!(kinds("chosen", &seen, 2).await, ["added", "deleted"]);
    assert_eq!(kinds("!other", "0", 1).await, ["added"]);
    // The stream ends after its time, although nothing happens.
    assert!(kinds("other", "0", 1).await.is_empty());

    let open = maps.0.watch(&WatchParams::default(), &seen).await.unwrap();
    let mut open = pin!(open);
    assert!(open.next().await.unwrap().is_ok() && open.next().await.unwrap().is_ok());
    assert!(open.next().now_or_never().is_none());
    server.store().expire_watches();
    let end = open.next().await.unwrap().unwrap();
    assert!(matches!(end, WatchEvent::Error(status) if status.code == 410));
    assert_eq!(kinds("", &seen, 1).await, ["error"]);
}

#[tokio::test]
async fn lists_come_in_pages_and_by_fields() {
    let server = server();
    for (name, kind) in [("a", "Opaque"), ("b", "example.test/x"), ("c", "Opaque")] {
        server.put(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"name": name, "namespace": "a"},
        }));
    }
    let api: Api<Secret> = Api::all(server.client());
    let names = async |params: ListParams| {
        let list = api.list(&params).await?;
        let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        Ok::<_, kube::Error>((names.concat(), list.metadata.continue_))
    };
    let two = ListParams::default().limit(2);
    let (first, token) = names(two.clone()).await.unwrap();
    assert_eq!(first, "ab");
    let second = names(two.continue_token(&token.unwrap())).await;
    assert_eq!(second.unwrap(), ("c".to_owned(), None));
    let of_type = ListParams::default().fields("type=example.test/x");
    assert_eq!(names(of_type).await.unwrap().0, "b");
    let of_data = ListParams::default().fields("data=x");
    assert_eq!(code(names(of_data).await), 400);
    let partial = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(partial.items.len(), 3);
    server.behave(|it| it.page = 1);
    assert_eq!(names(ListParams::default()).await.unwrap().0, "a");
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
#[case(Rollout::Immediate, 2)]
#[case(Rollout::Stuck, 0)]
#[tokio::test]
async fn deployments_roll_out_as_the_server_has_it(
    #[case] rollout: Rollout,
    #[case] available: i32,
) {
    let server = server();
    server.behave(|it| it.rollout = rollout);
    server.put(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "a"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}},
    }));
    let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(server.client(), "a");
    let status = api.get("web").await.unwrap().status.unwrap();
    assert_eq!(
        (status.observed_generation, status.available_replicas),
        (Some(1), Some(available))
    );
    // Pods of an earlier template go on to run beside new ones that do not become ready.
    let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
    let patch = Patch::Merge(template);
    api.patch("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let status = api.get("web").await.unwrap().status.unwrap();
    let (all, updated) = if available == 2 { (2, 2) } else { (3, 1) };
    let replicas = (
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
    );
    assert_eq!(replicas, (Some(all), Some(updated), Some(2)));
    assert_eq!(status.observed_generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn faults_meet_the_requests_that_they_name() {
    let server = server();
    let maps = Maps::of(&server);
    let create = async |name: &str| maps.create(name, json!({})).await;
    let unavailable = server.fault("create configmaps a/x").times(1);
    let unavailable = unavailable.status_after(503, 7);
    assert_eq!(code(create("x").await), 503);
    create("x").await.unwrap();
    assert_eq!(unavailable.hits(), 1);

    let _lost = server.fault("create configmaps a/lost").lose_answers();
    let silent = tokio::time::timeout(Duration::from_mins(1), create("lost")).await;
    assert!(silent.is_err() && server.get("configmaps", "a", "lost").is_some());
    let _reset = server.fault("create configmaps a/reset").reset();
    assert!(matches!(
        create("reset").await,
        Err(kube::Error::Service(_))
    ));
    assert!(server.get("configmaps", "a", "reset").is_none());

    let racing = server.fault("update configmaps").times(1).before(|server| {
        server.edit("configmaps", ("a", "x"), |it| {
            it["data"] = json!({"by": "another writer"});
        });
    });
    let stored = maps.0.get("x").await.unwrap();
    assert_eq!(code(maps.replace(&stored).await), 409);
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
    let writes = ["x", "y", "x"].map(|name| maps.create(name, json!({})));
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

#[tokio::test]
async fn a_namespace_that_is_being_deleted_takes_nothing_new() {
    let server = server();
    server.edit("namespaces", ("", "a"), |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let result = Maps::of(&server).create("x", json!({})).await;
    let Err(kube::Error::Api(status)) = result else {
        panic!("{result:?}");
    };
    let causes = status.details.unwrap().causes;
    assert_eq!(causes[0].reason, "NamespaceTerminating");
    server.put(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}}),
    );
    let namespaces: Api<Namespace> = Api::all(server.client());
    namespaces
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    assert!(server.get("secrets", "a", "s").is_none());
}

#[test]
fn servers_that_hold_the_same_share_it() {
    let common = Arc::<store::Common>::default();
    let behaviour = Arc::new(Behaviour::default());
    let store = |number| Store::new(Arc::clone(&common), number, Arc::clone(&behaviour));
    let stores = [0, 1].map(|number| Arc::new(store(number)));
    let uri = "/api/v1/namespaces/default/configmaps/x?fieldManager=m";
    let uri = uri.parse().unwrap();
    let apply = "application/apply-patch+yaml".parse().unwrap();
    let headers = http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, apply)]);
    let body = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}"#;
    for store in &stores {
        let call = Call {
            method: &http::Method::PATCH,
            uri: &uri,
            headers: &headers,
            body: body.as_bytes(),
        };
        assert!(store.respond(&call).changed);
    }
    let state = |store: &Store| {
        let inner = store.inner();
        let mut objects = inner.objects.iter();
        objects
            .find(|(key, _)| &*key.name == "x")
            .unwrap()
            .1
            .state
            .clone()
            .unwrap()
    };
    assert!(Arc::ptr_eq(&state(&stores[0]), &state(&stores[1])));
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
    server.delete("configmaps", "a", "x");
    server.delete("configmaps", "a", "none");
    let kept = server.get("configmaps", "a", "x").unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_string());
    server.edit("configmaps", ("a", "x"), |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    });
    let moved = server.get("configmaps", "a", "x").unwrap();
    assert_eq!(
        moved["metadata"]["deletionTimestamp"],
        "2026-01-02T03:04:05Z"
    );
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
    assert_eq!(
        server.count("delete"),
        0,
        "an administrator's request is not recorded"
    );
}

#[tokio::test]
async fn an_admission_plugin_may_take_an_annotation_away() {
    let server = server();
    let maps = Maps::of(&server);
    maps.create("x", json!({})).await.unwrap();
    server.behave(|it| it.stripped = Some("a/b"));
    let change = json!({"metadata": {"annotations": {"a/b": "1", "c": "2"}}});
    let annotations = maps.merge(change).await.unwrap().metadata.annotations;
    assert_eq!(json!(annotations), json!({"c": "2"}));
}
