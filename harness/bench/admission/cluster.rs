//! The start time of the webhook, and its memory in a cluster with many Pods and Secrets.
//!
//! Half of the Namespaces opt in to all features. Their Pods were adapted by the webhook before they were stored, so the
//! webhook stores the data of every covered Pod, and none is missed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;
use testkit::pki::Authority;
use testkit::until::until;

use super::landscape::{Landscape, OPTED_IN, PLAIN, namespace};
use super::reviews::{self, Size};
use super::systems::{Systems, ask, patched, requests};
use crate::environment::Bench;
use crate::report::{Bound, Row};
use crate::statistics::{Estimate, number};

pub(super) async fn rows(bench: &Bench, systems: &Systems<'_>) -> anyhow::Result<[Row; 2]> {
    let row = |name: &str, result: Estimate, bound| {
        let cells = [name, "", "", &format!("{result:.1}")];
        Row::new(cells).bound(bound)
    };
    let start = start(bench).await?;
    let at_most = |limit| Bound::at_most(start, limit, " ms");
    let bound = bench
        .effort
        .choose(at_most(300.0).target(), at_most(3_000.0));
    let name = "ready after the start, ms, local API server";
    let first = row(name, start, bound);
    let memory = Estimate::from(memory(bench, systems).await?);
    let at_most = |limit| Bound::at_most(memory, limit, " MiB");
    let bound = bench.effort.choose(at_most(25.0).target(), at_most(40.0));
    let name = "RSS idle, MiB, 10,000 Secrets and 10,000 Pods in the cluster";
    Ok([first, row(name, memory, bound)])
}

/// Returns the milliseconds from the start of the process to its readiness, in a cluster without Pods.
async fn start(bench: &Bench) -> anyhow::Result<Estimate> {
    let authority = Authority::new("bench")?;
    let landscape = Landscape::of(bench, "webhook-start", &authority).await?;
    let mut times = Vec::new();
    for number in 0..bench.effort.choose(20, 6) {
        let begin = Instant::now();
        let mut webhook = landscape.start(&format!("bench-{number}"))?;
        let process = &mut webhook.process;
        let after = landscape.program.ready_after(begin, process).await?;
        times.push(after.as_secs_f64() * 1e3);
        process.kill().await?;
    }
    Estimate::of(&times)
}

/// Returns the memory of the leader in MiB, after its watches have listed the cluster and a review was answered.
async fn memory(bench: &Bench, systems: &Systems<'_>) -> anyhow::Result<f64> {
    let authority = Authority::new("bench")?;
    let landscape = Landscape::of(bench, "webhook-large", &authority).await?;
    fill(&landscape.api, &Templates::of(systems).await?);
    let mut webhook = landscape.start("bench")?;
    let program = &landscape.program;
    program.ready(&mut webhook.process).await?;
    until("the watches are filled", PATIENCE, async || {
        let copies = program.metrics().await?.value(COPIES);
        let expected = number(NAMESPACES / 2) + 1.0;
        let is_filled = copies == Some(expected) && has_listed(&landscape.api);
        is_filled
            .then_some(())
            .with_context(|| format!("copies of the pull Secret: {copies:?}"))
    })
    .await?;
    let pod = reviews::pod(Size::Typical, OPTED_IN)?;
    ask(&webhook, &requests(&pod, "\"patch\":")).await?;
    let memory = program.idle_memory(&webhook.process).await?;
    let missed = program.metrics().await?.count(MISSED);
    ensure!(missed == 0, "{missed} Pods are taken for missed");
    Ok(memory)
}

/// Whether each list of Pods is followed by its watch, and whole Pods are listed, not only their metadata.
fn has_listed(api: &ApiServer) -> bool {
    let are_whole = |verb: &str| -> BTreeSet<bool> {
        let requests = api.requests_of(&format!("{verb} pods")).into_iter();
        let are_whole = requests.map(|it| !it.accept.contains("PartialObjectMetadata"));
        are_whole.collect()
    };
    let watched = are_whole("watch");
    watched.contains(&true) && are_whole("list") == watched
}

fn fill(api: &ApiServer, templates: &Templates) {
    for number in 0..NAMESPACES {
        api.put(&namespace(&home(number), opts_in(number)));
    }
    for number in 0..OBJECTS {
        api.put(&secret(number));
        api.put(&templates.pod(number));
    }
}

fn home(number: usize) -> String {
    format!("team-{:03}", number % NAMESPACES)
}

fn opts_in(number: usize) -> bool {
    (number % NAMESPACES).is_multiple_of(2)
}

/// Running Pods, by whether their Namespace opts in: a small one and a typical one.
struct Templates([[Value; 2]; 2]);

impl Templates {
    async fn of(systems: &Systems<'_>) -> anyhow::Result<Self> {
        let of_size = async |size| {
            let plain = reviews::pod(size, PLAIN)?;
            let pod = reviews::pod(size, OPTED_IN)?;
            let response = ask(&systems.webhook, &requests(&pod, "\"patch\":")).await?;
            let adapted = patched(&pod, &response)?;
            anyhow::Ok([running(plain)?, running(adapted)?])
        };
        let [small, typical] = [of_size(Size::Small).await?, of_size(Size::Typical).await?];
        let ([plain, adapted], [large_plain, large_adapted]) = (small, typical);
        Ok(Self([[plain, large_plain], [adapted, large_adapted]]))
    }

    /// Returns one of the Pods, of which up to four have the same owner.
    fn pod(&self, number: usize) -> Value {
        let round = number / NAMESPACES;
        let mut pod = self.0[usize::from(opts_in(number))][round % 2].clone();
        let metadata = &mut pod["metadata"];
        let owner = number % NAMESPACES + round / 4 * NAMESPACES;
        metadata["name"] = json!(format!("orders-7c9d8f6b5-{number:05}"));
        metadata["namespace"] = json!(home(number));
        metadata["uid"] = json!(format!("0c0ffee0-0000-4000-8000-{number:012}"));
        metadata["ownerReferences"][0]["uid"] =
            json!(format!("0c0ffee0-0000-4000-9000-{owner:012}"));
        pod
    }
}

/// Returns the Pod with the fields that scheduler and kubelet add.
fn running(mut pod: Value) -> anyhow::Result<Value> {
    let parts: Value = serde_json::from_str(include_str!("running.json"))?;
    let (mut fields, mut status) = (parts["fields"].clone(), parts["status"].clone());
    let mut conditions = Vec::new();
    for kind in CONDITIONS {
        let mut condition = parts["condition"].clone();
        condition["type"] = json!(kind);
        conditions.push(condition);
        let key = format!("k:{}", json!({"type": kind}));
        let of_condition = parts["condition_fields"].clone();
        fields["fieldsV1"]["f:status"]["f:conditions"][key] = of_condition;
    }
    status["conditions"] = json!(conditions);
    for (list, statuses) in [
        ("initContainers", "initContainerStatuses"),
        ("containers", "containerStatuses"),
    ] {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        let of_containers = containers.map(|container| {
            let mut status = parts["container"].clone();
            status["name"] = container["name"].clone();
            status["image"] = container["image"].clone();
            status
        });
        status[statuses] = of_containers.collect();
    }
    pod["spec"]["nodeName"] = json!("worker-1");
    pod["status"] = status;
    let managers = pod["metadata"]["managedFields"].as_array_mut();
    managers.context("managedFields")?.push(fields);
    Ok(pod)
}

/// Returns one of the Secrets, with 3 kB of data. Every tenth is a pull Secret of its Namespace.
fn secret(number: usize) -> Value {
    let value = |length: usize| BASE64.encode("0123456789abcdef".repeat(length / 16));
    let (kind, data) = if number.is_multiple_of(10) {
        let key = api::names::DOCKER_CONFIG_KEY;
        let config = json!({"auths": {"registry.example": {"auth": value(1_500)}}}).to_string();
        let data = json!({(key): BASE64.encode(config)});
        (api::names::DOCKER_CONFIG_TYPE, data)
    } else {
        let data = json!({"tls.crt": value(1_500), "tls.key": value(250), "ca.crt": value(500)});
        ("Opaque", data)
    };
    let fields = json!({"f:data": {".": {}, "f:tls.crt": {}, "f:tls.key": {}, "f:ca.crt": {}}, "f:type": {}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
        "metadata": {
            "name": format!("secret-{number:05}"), "namespace": home(number),
            "labels": {"app.kubernetes.io/part-of": "shop"},
            "managedFields": [{
                "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }],
        },
    })
}

const NAMESPACES: usize = 500;
/// Number of Pods, and of Secrets.
const OBJECTS: usize = 10_000;
const CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];
const COPIES: &str = "rt_bootstrapper_pull_secret_copies";
const MISSED: &str = "rt_bootstrapper_missed_pods";
const PATIENCE: Duration = Duration::from_mins(3);

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Secret};

    use super::*;

    #[test]
    fn pods_and_secrets_have_the_size_that_is_published_and_the_shape_of_an_api_servers() {
        let plain = [Size::Small, Size::Typical].map(|size| {
            let pod = reviews::pod(size, PLAIN).unwrap();
            running(pod).unwrap()
        });
        let templates = Templates([plain.clone(), plain]);
        let (mut pods, mut secrets) = (0, 0);
        let mut owners: BTreeSet<String> = BTreeSet::new();
        // The sample contains the Pods of every fiftieth Namespace.
        let sample: Vec<usize> = (0..OBJECTS).step_by(50).collect();
        for &number in &sample {
            let pod = templates.pod(number);
            pods += pod.to_string().len();
            secrets += secret(number).to_string().len();
            let owner = pod["metadata"]["ownerReferences"][0]["uid"].as_str();
            owners.insert(owner.unwrap().to_owned());
        }
        let [pods, secrets] = [pods, secrets].map(|bytes| bytes / sample.len());
        assert!((7_500..9_000).contains(&pods), "{pods} bytes");
        assert!((3_000..4_000).contains(&secrets), "{secrets} bytes");
        assert_eq!(owners.len(), sample.len() / 4);
        let _: Secret = serde_json::from_value(secret(10)).unwrap();
        let pod: Pod = serde_json::from_value(templates.pod(NAMESPACES)).unwrap();
        assert_eq!(pod.metadata.namespace.as_deref(), Some("team-000"));
        assert_eq!(pod.metadata.managed_fields.unwrap().len(), 2);
        let status = pod.status.unwrap();
        assert_eq!(status.conditions.unwrap().len(), CONDITIONS.len());
        assert_eq!(status.container_statuses.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn pods_are_listed_when_each_list_has_its_watch() {
        let api = ApiServer::new();
        assert!(!has_listed(&api));
        let ask = async |query: &str, accept: &str| {
            let request = http::Request::get(format!("/api/v1/pods{query}"));
            let request = request
                .header("accept", accept)
                .body(String::new())
                .unwrap();
            drop(api.answer(request).await.unwrap());
        };
        let (whole, partial) = (
            "application/json",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        );
        for (query, accept, expected) in [
            ("", partial, false),
            ("?watch=true&resourceVersion=1", partial, false),
            ("", whole, false),
            ("?watch=true&resourceVersion=1", whole, true),
        ] {
            ask(query, accept).await;
            assert_eq!(has_listed(&api), expected, "{query} {accept}");
        }
    }
}
