//! `harness bench policy`: the cost of the fallback policy for a Pod, in a real API server.
//!
//! Pods are created sequentially with dry run: no Pod is stored, and no webhook is called. A round has the same Pod in three
//! Namespaces: `kube-system`, whose Pods are not matched, one without opt-in, and one that opts in to all features. The time of
//! a creation includes the API server and a loopback connection.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::names;
use clusters::cluster::{Cluster, ClusterOptions, write_kubeconfig};
use clusters::control_plane::Sources;
use clusters::run::Run;
use clusters::setup::Setup;
use http::Request;
use serde_json::{Value, json};
use testkit::until::until;

use super::reviews::{self, Size};
use crate::environment::Bench;
use crate::process::Program;
use crate::report::{Bound, Row, Table};
use crate::statistics::Estimate;

const UNMATCHED: &str = names::EXCLUDED_NAMESPACE;
const PLAIN: &str = "plain";
const OPTED_IN: &str = "orders";
const ACTIVE: &str = "rt_bootstrapper_fallback_policy_active";
const WITHIN: Duration = Duration::from_mins(1);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Table> {
    let setup = Setup::load()?;
    let run = Run::begin(false).await?;
    let options = ClusterOptions::new("bench-policy").without_node();
    let cluster = Cluster::start(&run, &setup.provider, &options).await?;
    let measured = on(bench, &cluster).await;
    cluster.stop().await?;
    run.end().await?;
    measured
}

async fn on(bench: &Bench, cluster: &Cluster) -> anyhow::Result<Table> {
    prepare(cluster).await?;
    let program = Program::new(bench, "policy")?;
    let kubeconfig = cluster.direct_kubeconfig().await?.to_string();
    let kubeconfig = write_kubeconfig("bench-policy-direct", &kubeconfig)?;
    let _process = program.start(vec![
        "webhook".to_owned(),
        format!("--webhook-bind-address={}", program.address),
        format!("--metrics-bind-address={}", program.metrics),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--namespace={}", names::SKR_NAMESPACE),
        "--landscape=bench".to_owned(),
        "--mutating-admission-policy=on".to_owned(),
    ])?;
    until("the policy is evaluated", WITHIN, async || {
        let active = program.metrics().await.ok()?.value(ACTIVE)?;
        (active > 0.0).then_some(())
    })
    .await?;
    let mut rows = Vec::new();
    for (size, name) in [
        (Size::Small, "small"),
        (Size::Typical, "typical"),
        (Size::Large, "large"),
    ] {
        rows.push(row(bench, cluster, size, name).await?);
    }
    Ok(Table::new(COLUMNS, rows))
}

async fn row(bench: &Bench, cluster: &Cluster, size: Size, name: &str) -> anyhow::Result<Row> {
    let pods = [UNMATCHED, PLAIN, OPTED_IN].map(|namespace| pod(size, namespace));
    let [unmatched, plain, opted_in] = pods;
    let pods = [(unmatched?, false), (plain?, false), (opted_in?, true)];
    for (pod, is_adapted) in &pods {
        let created = create(cluster, pod).await?;
        let has_secret = created["spec"]["imagePullSecrets"][0]["name"] == names::PULL_SECRET;
        ensure!(
            has_secret == *is_adapted,
            "{}",
            created["metadata"]["namespace"]
        );
    }
    let creations = bench.effort.choose(20, 10);
    let mut rounds: Vec<[f64; 3]> = Vec::new();
    for _ in 0..bench.effort.choose(20, 6) {
        let mut round = [0.0; 3];
        // The order is symmetric, so that a drift of the machine cancels out.
        for index in [0, 1, 2, 2, 1, 0] {
            let start = Instant::now();
            for _ in 0..creations {
                create(cluster, &pods[index].0).await?;
            }
            round[index] += start.elapsed().as_secs_f64() * 1000.0 / f64::from(2 * creations);
        }
        rounds.push(round);
    }
    let of = |value: &dyn Fn(&[f64; 3]) -> f64| {
        Estimate::of(&rounds.iter().map(value).collect::<Vec<_>>())
    };
    let cost = of(&|it| it[2] - it[0])?;
    let cells = [of(&|it| it[0])?, of(&|it| it[1])?, of(&|it| it[2])?, cost];
    let limit = if size == Size::Large { 50.0 } else { 10.0 };
    Ok(Row::of(name, cells, 2).bound(Bound::at_most(cost, limit, " ms")))
}

/// Creates the sources of the policy, the policy's owner without any webhook, and the Namespaces.
async fn prepare(cluster: &Cluster) -> anyhow::Result<()> {
    let namespaces = [
        (names::SKR_NAMESPACE, json!({})),
        (PLAIN, json!({})),
        (OPTED_IN, json!({"rt-cfg.kyma-project.io/all": "true"})),
    ];
    for (name, annotations) in namespaces {
        let metadata = json!({"name": name, "annotations": annotations});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        cluster.apply(&namespace.to_string()).await?;
    }
    for object in Sources::of_version(0)?.objects(names::SKR_NAMESPACE) {
        cluster.apply(&object.to_string()).await?;
    }
    let owner = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": names::WEBHOOK_CONFIGURATION}, "webhooks": [],
    });
    cluster.apply(&owner.to_string()).await?;
    for namespace in [UNMATCHED, PLAIN, OPTED_IN] {
        let pod = pod(Size::Small, namespace)?;
        until("the service account", WITHIN, async || {
            create(cluster, &pod).await
        })
        .await?;
    }
    Ok(())
}

/// Returns the Pod as a client sends it.
fn pod(size: Size, namespace: &str) -> anyhow::Result<Value> {
    let mut pod = reviews::pod(size, namespace)?;
    let metadata = pod["metadata"].as_object_mut().context("metadata")?;
    for field in ["managedFields", "ownerReferences"] {
        metadata.remove(field);
    }
    Ok(pod)
}

async fn create(cluster: &Cluster, pod: &Value) -> anyhow::Result<Value> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let uri = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let request = Request::post(uri).header("content-type", "application/json");
    let request = request.body(pod.to_string().into_bytes())?;
    Ok(cluster.client().request(request).await?)
}

const COLUMNS: [&str; 5] = [
    "Pod, ms per creation",
    "not matched",
    "matched, no feature",
    "all features",
    "cost of all features",
];
