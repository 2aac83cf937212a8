use testkit::apiserver::ApiServer;
use testkit::apiserver::kinds::{KYMAS, RUNTIMES};

use super::*;

impl Instance {
    pub(crate) fn example() -> Self {
        Self {
            runtime_id: "4d7c1c0e-8f0f-4d34-9d0a-1f6b1d6e8a55".to_owned(),
            shoot: "c-1a2b3c4".to_owned(),
            mode: "signal".to_owned(),
            modules: vec!["istio".to_owned()],
        }
    }
}

/// The fixture contains the objects that the public broker writes, with one label of the product in addition.
#[test]
fn created_objects_have_the_public_shape() {
    let instance = Instance::example();
    let mut runtime = instance.runtime();
    let labels = runtime["metadata"]["labels"].as_object_mut().unwrap();
    assert_eq!(labels.remove(MODE_LABEL), Some(json!("signal")));
    let fixture: Vec<Value> = serde_saphyr::from_multiple(include_str!("fixture.yaml")).unwrap();
    assert_eq!([runtime, instance.kyma()][..], fixture);
}

/// Returns a control plane without objects, and a broker for it with the public intervals.
fn env() -> (ApiServer, Keb) {
    let server = ApiServer::with_kinds([&RUNTIMES, &KYMAS]);
    server.namespace(KCP_NAMESPACE);
    let keb = Keb::new(Objects::new(server.client()), Waiting::default());
    (server, keb)
}

fn with_state(state: &str) -> Value {
    let mut runtime = Instance::example().runtime();
    runtime["status"] = json!({ "state": state });
    runtime
}

/// Returns the times at which the Runtime was read, in whole seconds since `begin`.
fn reads(server: &ApiServer, begin: Instant) -> Vec<u64> {
    let reads = server.requests_of("get runtimes").into_iter();
    reads.map(|it| (it.begin - begin).as_secs()).collect()
}

fn writes(verbs: [&str; 2]) -> [String; 2] {
    verbs.map(|verb| format!("{verb} kcp-system/{}", Instance::example().runtime_id))
}

#[tokio::test(start_paused = true)]
async fn failed_runtime_that_becomes_ready_gets_its_kyma() {
    let (server, keb) = env();
    let instance = Instance::example();
    let begin = Instant::now();
    let repaired = async {
        sleep(Duration::from_secs(5)).await;
        server.put(&with_state("Failed"));
        sleep(Duration::from_secs(30)).await;
        server.put(&with_state("Ready"));
    };
    let (provisioned, ()) = tokio::join!(keb.provision(&instance), repaired);
    provisioned.unwrap();
    assert_eq!(reads(&server, begin), [0, 0, 10, 20, 30, 40]);
    assert_eq!(server.writes(), writes(["create runtimes", "create kymas"]));
}

#[tokio::test(start_paused = true)]
async fn runtime_that_is_not_ready_within_an_hour_is_deleted_and_gets_no_kyma() {
    let (server, keb) = env();
    let instance = Instance::example();
    let begin = Instant::now();
    let pending = async {
        sleep(Duration::from_secs(5)).await;
        server.put(&with_state("Pending"));
    };
    let (provisioned, ()) = tokio::join!(keb.provision(&instance), pending);
    let text = provisioned.unwrap_err().to_string();
    assert!(text.ends_with(r#"in time: {"state":"Pending"}"#), "{text}");
    assert_eq!(
        server.writes(),
        writes(["create runtimes", "delete runtimes"])
    );
    let last = reads(&server, begin).pop().unwrap();
    assert!((3600..=3610).contains(&last), "{last}");
}

#[tokio::test(start_paused = true)]
async fn existing_runtime_stays_as_it_is_and_an_existing_kyma_gets_labels_and_annotations() {
    let (server, keb) = env();
    let instance = Instance::example();
    let name = &*instance.runtime_id;
    let mut runtime = with_state("Ready");
    runtime["spec"]["shoot"]["purpose"] = json!("evaluation");
    runtime["metadata"]["labels"] = json!({ "kept": "true" });
    server.put(&runtime);
    let mut kyma = instance.kyma();
    kyma["spec"]["channel"] = json!("fast");
    kyma["metadata"]["labels"] = json!({ "kept": "true" });
    kyma["metadata"]["annotations"] = Value::Null;
    server.put(&kyma);

    let runtime = server.get("runtimes", KCP_NAMESPACE, name);
    keb.provision(&instance).await.unwrap();
    assert_eq!(server.get("runtimes", KCP_NAMESPACE, name), runtime);
    let found = server.get("kymas", KCP_NAMESPACE, name).unwrap();
    assert_eq!(found["spec"], kyma["spec"]);
    let mut expected = instance.kyma()["metadata"].clone();
    expected["labels"]["kept"] = json!("true");
    let metadata = &found["metadata"];
    assert_eq!(metadata["labels"], expected["labels"]);
    assert_eq!(metadata["annotations"], expected["annotations"]);
}
