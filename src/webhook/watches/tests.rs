use std::collections::BTreeMap;

use api::names::CONFIG_KEY;
use chassis::client::{Deadline, RequestMetrics, over};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kube::client::Body;
use kube::runtime::events::Reporter;
use policy::admission::Settings;
use rstest::rstest;
use serde_json::json;
use tower::service_fn;

use super::configuration::Keeper;
use super::trust_bundle::{Served, served};
use super::*;

/// An API server that knows some paths and answers 404 to the rest.
fn api_server(known: Vec<(&'static str, serde_json::Value)>) -> Client {
    let service = service_fn(move |request: http::Request<Body>| {
        let answer = known.iter().find(|(path, _)| *path == request.uri().path());
        let (status, body) = match answer {
            Some((_, body)) => (200, body.clone()),
            None => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}),
            ),
        };
        let response = http::Response::builder()
            .status(status)
            .body(Body::from(body.to_string().into_bytes()));
        async move { response }
    });
    let deadline = Deadline::new(std::time::Duration::from_secs(5));
    let mut registry = Registry::default();
    over(
        service,
        "default",
        deadline,
        &RequestMetrics::register(&mut registry),
    )
}

fn watches(client: Client) -> Watches {
    let reporter = Reporter {
        controller: "test".into(),
        instance: None,
    };
    Watches {
        reporter,
        client,
        settings: WatchSettings {
            namespace: "kyma-system".into(),
            config_map: "rt-bootstrapper-config".into(),
            settings: Settings {
                landscape: None,
                pull_secret: "registry-credentials".into(),
            },
        },
        knowledge: Knowledge::default(),
        readiness: Readiness::default(),
        metrics: WatchMetrics::default(),
    }
}

fn config_map(key: &str, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("rt-bootstrapper-config".into()),
            namespace: Some("kyma-system".into()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(key.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_valid_document_comes_into_force_and_a_broken_one_does_not() {
    let watches = watches(api_server(vec![]));
    let mut keeper = Keeper::new(&watches);
    assert!(!watches.readiness.is_ready());

    keeper
        .take(Some(&config_map(
            CONFIG_KEY,
            r#"{"overrides":{"a.io":"b.io"}}"#,
        )))
        .await;
    let good = watches.knowledge.configuration().unwrap();
    assert!(watches.readiness.is_ready());

    keeper.take(Some(&config_map(CONFIG_KEY, "{"))).await;
    assert_eq!(watches.knowledge.configuration().unwrap(), good);
    assert!(
        watches.readiness.is_ready(),
        "it goes on with the last good one"
    );
    assert!(
        watches
            .readiness
            .report()
            .1
            .contains("the last good one is in force")
    );
    assert_eq!(watches.metrics.configuration_valid.get(), 0);

    keeper.take(None).await;
    assert_eq!(watches.knowledge.configuration().unwrap(), good);

    keeper
        .take(Some(&config_map(CONFIG_KEY, r#"{"overrides":{}}"#)))
        .await;
    assert_ne!(watches.knowledge.configuration().unwrap(), good);
    assert_eq!(watches.metrics.configuration_valid.get(), 1);
}

#[rstest]
#[case::absent(None, "does not exist")]
#[case::another_key(Some(config_map("other", "{}")), "has no key")]
#[case::broken(Some(config_map(CONFIG_KEY, "{")), "invalid")]
#[case::contradictory(
    Some(config_map(CONFIG_KEY, r#"{"overrides":{},"availableFeatures":["x"]}"#)),
    "unknown feature"
)]
#[tokio::test]
async fn without_a_valid_document_it_is_not_ready_and_says_why(
    #[case] map: Option<ConfigMap>,
    #[case] why: &str,
) {
    let watches = watches(api_server(vec![]));
    Keeper::new(&watches).take(map.as_ref()).await;
    let (ready, report) = watches.readiness.report();
    assert!(!ready);
    assert!(report.contains(why), "{report}");
    assert_eq!(watches.knowledge.configuration(), None);
}

#[tokio::test]
async fn a_new_name_is_noticed_and_any_other_change_is_not() {
    let watches = watches(api_server(vec![]));
    let name = |watches: &Watches| {
        let configuration = watches.knowledge.configuration();
        configuration.map(|it| it.pull_secret().name.clone())
    };
    let mut differs = Box::pin(watches.differs(&None, name));
    assert!(futures::poll!(&mut differs).is_pending());
    watches
        .knowledge
        .set_trust_bundle(policy::admission::TrustBundlePresence::Present);
    assert!(
        futures::poll!(&mut differs).is_pending(),
        "another part of the knowledge"
    );
    let map = config_map(CONFIG_KEY, r#"{"overrides":{}}"#);
    Keeper::new(&watches).take(Some(&map)).await;
    assert!(futures::poll!(&mut differs).is_ready());
}

fn group(version: &str, resource: &str) -> serde_json::Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("certificates.k8s.io/{version}"),
        "resources": [{"name": resource, "singularName": "", "namespaced": false, "kind": "X", "verbs": ["get"]}],
    })
}

#[rstest]
#[case::newest(vec![("v1", "clustertrustbundles"), ("v1beta1", "clustertrustbundles")], Served::V1)]
#[case::beta(vec![("v1", "certificatesigningrequests"), ("v1beta1", "clustertrustbundles")], Served::V1Beta1)]
#[case::group_without_it(vec![("v1", "certificatesigningrequests")], Served::No)]
#[case::no_group(vec![], Served::No)]
#[tokio::test]
async fn the_served_version_is_discovered(
    #[case] versions: Vec<(&'static str, &'static str)>,
    #[case] expected: Served,
) {
    let paths = versions
        .into_iter()
        .map(|(version, resource)| {
            let path = if version == "v1" {
                "/apis/certificates.k8s.io/v1"
            } else {
                "/apis/certificates.k8s.io/v1beta1"
            };
            (path, group(version, resource))
        })
        .collect();
    assert_eq!(served(&api_server(paths)).await.unwrap(), expected);
}
