//! The server as its clients see it: typed clients of kube, without sockets.

use std::collections::BTreeMap;
use std::pin::pin;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions, WatchEvent, WatchParams,
};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
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

fn config_maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "a")
}

fn widgets(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.test", "v1alpha1", "Widget");
    Api::namespaced_with(
        client,
        "a",
        &ApiResource::from_gvk_with_plural(&kind, "widgets"),
    )
}

fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data: BTreeMap<String, String> = data
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some(name.into()),
            ..Default::default()
        },
        data: Some(data),
        ..Default::default()
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn writes_have_the_optimistic_lock_of_an_api_server() {
    let server = server();
    let api = config_maps(server.client());
    let first = api
        .create(&PostParams::default(), &map("x", &[("k", "1")]))
        .await
        .unwrap();
    assert_eq!(
        code(api.create(&PostParams::default(), &map("x", &[])).await),
        409
    );
    let mut second = first.clone();
    second.data = map("x", &[("k", "2")]).data;
    let replaced = api
        .replace("x", &PostParams::default(), &second)
        .await
        .unwrap();
    assert_ne!(replaced.resource_version(), first.resource_version());
    assert_eq!(
        code(api.replace("x", &PostParams::default(), &second).await),
        409
    );
    let idle = api
        .replace("x", &PostParams::default(), &replaced)
        .await
        .unwrap();
    assert_eq!(
        idle.resource_version(),
        replaced.resource_version(),
        "nothing changed"
    );

    let patch = |version: Option<String>| json!({"metadata": {"resourceVersion": version}, "data": {"k": "3"}});
    let stale = Patch::Merge(patch(first.resource_version()));
    assert_eq!(
        code(api.patch("x", &PatchParams::default(), &stale).await),
        409
    );
    let fresh = Patch::Merge(patch(None));
    let patched = api
        .patch("x", &PatchParams::default(), &fresh)
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap()["k"], "3");

    let other = DeleteParams::default().preconditions(Preconditions {
        uid: Some("other".into()),
        ..Default::default()
    });
    assert_eq!(code(api.delete("x", &other).await), 409);
    api.delete("x", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(api.get("x").await), 404);
    assert_eq!(
        code(
            Api::<ConfigMap>::namespaced(server.client(), "b")
                .create(&PostParams::default(), &map("x", &[]))
                .await
        ),
        404
    );
}

#[tokio::test]
async fn appliers_own_their_fields() {
    let server = server();
    let api = config_maps(server.client());
    let apply = async |manager: &str, force: bool, data: &[(&str, &str)]| {
        let params = PatchParams {
            field_manager: Some(manager.into()),
            force,
            ..Default::default()
        };
        api.patch("x", &params, &Patch::Apply(&map_with_kind(data)))
            .await
    };
    apply("one", false, &[("k", "1"), ("gone", "1")])
        .await
        .unwrap();
    assert_eq!(code(apply("two", false, &[("k", "2")]).await), 409);
    apply("two", true, &[("k", "2")]).await.unwrap();
    let after = apply("one", false, &[]).await.unwrap();
    assert_eq!(
        after.data.unwrap(),
        BTreeMap::from([("k".to_owned(), "2".to_owned())])
    );
    let owners: Vec<String> = after
        .metadata
        .managed_fields
        .unwrap()
        .into_iter()
        .filter_map(|it| it.manager)
        .collect();
    assert_eq!(owners, ["two"]);
}

fn map_with_kind(data: &[(&str, &str)]) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    for (key, value) in data {
        map["data"][key] = json!(value);
    }
    map
}

#[tokio::test]
async fn status_is_a_resource_of_its_own() {
    let server = server();
    let api = widgets(server.client());
    let widget = json!({
        "apiVersion": "example.test/v1alpha1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": 1}, "status": {"ready": true},
    });
    let widget: DynamicObject = serde_json::from_value(widget).unwrap();
    let created = api.create(&PostParams::default(), &widget).await.unwrap();
    assert_eq!(
        created.data,
        json!({"spec": {"size": 1}}),
        "the status is not written with the object"
    );
    assert_eq!(created.metadata.generation, Some(1));
    let status = json!({
        "apiVersion": "example.test/v1alpha1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": 7}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let params = PatchParams::apply("controller");
    let after = api
        .patch_status("w", &params, &Patch::Apply(&status))
        .await
        .unwrap();
    assert_eq!(after.data["spec"]["size"], 1);
    assert_eq!(after.data["status"]["conditions"][0]["status"], "True");
    assert_eq!(after.metadata.generation, Some(1));
    let entries = after.metadata.managed_fields.unwrap();
    let parts: Vec<Option<String>> = entries.into_iter().map(|it| it.subresource).collect();
    assert!(parts.contains(&Some("status".to_owned())), "{parts:?}");
    // A CustomResource must be replaced in a version.
    assert_eq!(
        code(api.replace("w", &PostParams::default(), &widget).await),
        422
    );
}

#[tokio::test]
async fn finalizers_keep_what_is_deleted() {
    let server = server();
    let api = config_maps(server.client());
    let mut object = map("x", &[]);
    object.metadata.finalizers = Some(vec!["a/b".to_owned()]);
    api.create(&PostParams::default(), &object).await.unwrap();
    let kept = api
        .delete("x", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert!(kept.metadata.deletion_timestamp.is_some());
    api.delete("x", &DeleteParams::default()).await.unwrap();
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("x", &PatchParams::default(), &release)
        .await
        .unwrap();
    assert_eq!(code(api.get("x").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_where_a_list_ended_and_expires() {
    let server = server();
    let api = config_maps(server.client());
    api.create(&PostParams::default(), &map("x", &[]))
        .await
        .unwrap();
    let seen = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let patch = |data: Value| Patch::Merge(json!({"metadata": {"labels": data}}));
    api.patch(
        "x",
        &PatchParams::default(),
        &patch(json!({"chosen": "yes"})),
    )
    .await
    .unwrap();
    api.patch(
        "x",
        &PatchParams::default(),
        &patch(json!({"chosen": null})),
    )
    .await
    .unwrap();
    let kinds = async |labels: &str, since: &str, count: usize| {
        let params = WatchParams {
            label_selector: Some(labels.into()),
            timeout: Some(10),
            ..Default::default()
        };
        let stream = api.watch(&params, since).await.unwrap();
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

    let mut open = pin!(api.watch(&WatchParams::default(), &seen).await.unwrap());
    assert!(open.next().await.unwrap().is_ok() && open.next().await.unwrap().is_ok());
    assert!(open.next().now_or_never().is_none());
    server.store().expire_watches();
    assert!(
        matches!(open.next().await.unwrap().unwrap(), WatchEvent::Error(status) if status.code == 410)
    );
    assert_eq!(kinds("", &seen, 1).await, ["error"]);
}

#[tokio::test]
async fn lists_come_in_pages_and_by_fields() {
    let server = server();
    for (name, kind) in [("a", "Opaque"), ("b", "example.test/x"), ("c", "Opaque")] {
        server.put(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "a"}, "type": kind}));
    }
    let api: Api<Secret> = Api::all(server.client());
    let names = |list: &kube::api::ObjectList<Secret>| {
        list.iter()
            .map(kube::ResourceExt::name_any)
            .collect::<Vec<_>>()
    };
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    let token = first.metadata.continue_.unwrap();
    let second = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(
        (names(&second), second.metadata.continue_),
        (vec!["c".to_owned()], None)
    );
    let of_kind = api
        .list(&ListParams::default().fields("type=example.test/x"))
        .await
        .unwrap();
    assert_eq!(names(&of_kind), ["b"]);
    assert_eq!(
        code(api.list(&ListParams::default().fields("data=x")).await),
        400
    );
    let partial = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(partial.items.len(), 3);
    server.behave(|it| it.page = 1);
    assert_eq!(
        names(&api.list(&ListParams::default()).await.unwrap()),
        ["a"]
    );
}

#[tokio::test]
async fn rights_are_checked_and_shown() {
    let server = server();
    let role = json!({"kind": "ClusterRole", "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"], "verbs": ["get", "list"]},
    ]});
    server.behave(|it| it.rights = Rights::of_roles([&role]));
    let api = config_maps(server.client());
    assert_eq!(code(api.get("y").await), 403);
    assert_eq!(code(api.get("x").await), 404);
    assert_eq!(code(api.list(&ListParams::default()).await), 403);
    assert!(
        api.list(&ListParams::default().fields("metadata.name=x"))
            .await
            .is_ok()
    );
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "group": "", "resource": "configmaps", "name": "x"}},
    });
    let review: k8s_openapi::api::authorization::v1::SelfSubjectAccessReview =
        serde_json::from_value(review).unwrap();
    let reviews = Api::all(server.client());
    assert!(
        reviews
            .create(&PostParams::default(), &review)
            .await
            .unwrap()
            .status
            .unwrap()
            .allowed
    );
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
    let api = config_maps(server.client());
    let create = async |name: &str| api.create(&PostParams::default(), &map(name, &[])).await;
    let refused = server
        .fault("create configmaps a/x")
        .times(1)
        .status_after(503, 7);
    assert_eq!(code(create("x").await), 503);
    create("x").await.unwrap();
    assert_eq!(refused.hits(), 1);

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
    let stored = api.get("x").await.unwrap();
    assert_eq!(
        code(api.replace("x", &PostParams::default(), &stored).await),
        409
    );
    racing.stop();

    let hold = server.fault("get configmaps a/x").hold();
    let mut reading = pin!(api.get("x"));
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
    let api = config_maps(server.client());
    let names = ["x", "y", "x"];
    let create = async |name: &str| {
        let (params, object) = (PostParams::default(), map(name, &[]));
        api.create(&params, &object).await
    };
    let writes = names.map(create);
    let _ = futures::future::join_all(writes).await;
    assert_eq!(server.most_at_once("create configmaps"), 3);
    assert_eq!(
        server.writes(),
        [
            "create configmaps a/x",
            "create configmaps a/y",
            "create configmaps a/x"
        ]
    );
    let pods: Api<Pod> = Api::all(server.client());
    pods.list(&ListParams::default()).await.unwrap();
    let recorded = server.take_requests();
    let of = |it: &Recorded| (it.asked.to_string(), it.status, it.changed);
    assert_eq!(
        of(&recorded[2]),
        ("create configmaps a/x".to_owned(), Some(409), false)
    );
    assert_eq!(of(&recorded[3]), ("list pods".to_owned(), Some(200), false));
    assert!(server.requests().is_empty());
    server.expect_token("secret");
    assert_eq!(code(api.get("x").await), 401);
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_takes_nothing_new() {
    let server = server();
    server.edit("namespaces", ("", "a"), |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let result = config_maps(server.client())
        .create(&PostParams::default(), &map("x", &[]))
        .await;
    let Err(kube::Error::Api(status)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(
        status.details.as_ref().unwrap().causes[0].reason,
        "NamespaceTerminating"
    );
    server.put(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}}),
    );
    Api::<k8s_openapi::api::core::v1::Namespace>::all(server.client())
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    assert!(server.get("secrets", "a", "s").is_none());
}

#[test]
fn servers_that_hold_the_same_share_it() {
    let common = Arc::<store::Common>::default();
    let behaviour = Arc::new(Behaviour::default());
    let stores = [0, 1].map(|number| {
        Arc::new(Store::new(
            Arc::clone(&common),
            number,
            Arc::clone(&behaviour),
        ))
    });
    let uri = "/api/v1/namespaces/default/configmaps/x?fieldManager=m"
        .parse()
        .unwrap();
    let headers = http::HeaderMap::from_iter([(
        http::header::CONTENT_TYPE,
        "application/apply-patch+yaml".parse().unwrap(),
    )]);
    let body = map_with_kind(&[("k", "1")]).to_string();
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
    let api = config_maps(server.client());
    let since = before["metadata"]["resourceVersion"].as_str().unwrap();
    let seen = api.watch(&WatchParams::default(), since).await.unwrap();
    let seen: Vec<WatchEvent<ConfigMap>> = seen.take(2).try_collect().await.unwrap();
    let time = |event: &WatchEvent<ConfigMap>| match event {
        WatchEvent::Modified(it) => it
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|it| it.0.to_string()),
        other => panic!("{other:?}"),
    };
    assert_eq!(time(&seen[1]).as_deref(), Some("2026-01-02T03:04:05Z"));
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("x", &PatchParams::default(), &release)
        .await
        .unwrap();
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
    let api = config_maps(server.client());
    api.create(&PostParams::default(), &map("x", &[]))
        .await
        .unwrap();
    server.behave(|it| it.stripped = Some("a/b"));
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a/b": "1", "c": "2"}}}));
    let after = api
        .patch("x", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let annotations = after.metadata.annotations.unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["c"]);
}
