//! The two compared systems, and a check that both respond correctly before the measurement.
//!
//! Both have a certificate of the same kind and run on the same core.

use anyhow::{Context as _, ensure};
use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::apiserver::Asked;
use testkit::pki::Authority;

use super::landscape::{LANDSCAPE, Landscape, OPTED_IN, PLAIN};
use super::reviews::{self, Size};
use crate::environment::Bench;
use crate::load::{Requests, Server, post};

pub(super) struct Systems<'a> {
    pub(super) baseline: Server,
    pub(super) webhook: Server,
    /// Memory (RSS) in MiB of the baseline and the webhook after the start, before the first review.
    pub(super) idle: [f64; 2],
    pub(super) landscape: Landscape<'a>,
}

impl<'a> Systems<'a> {
    pub(super) async fn start(bench: &'a Bench) -> anyhow::Result<Self> {
        let authority = Authority::new("bench")?;
        let landscape = Landscape::of(bench, "webhook", &authority).await?;
        let baseline = bench.start_baseline(&authority).await?;
        let mut webhook = landscape.start("bench")?;
        let program = &landscape.program;
        program.ready(&mut webhook.process).await?;
        let idle = program.idle_memory(&webhook.process).await?;
        Ok(Self {
            idle: [baseline.process.memory("VmRSS")?, idle],
            baseline,
            webhook,
            landscape,
        })
    }

    /// Returns the number of requests to the API server, except watches and requests for leases, and the number of reviews.
    pub(super) async fn calls(&self) -> anyhow::Result<[u64; 2]> {
        let reviews = self.landscape.program.metrics().await?.count(REVIEWS);
        let requests = self.landscape.api.requests();
        let is_counted = |asked: &Asked| asked.verb != "watch" && asked.resource != "leases";
        let requests = requests.iter().filter(|it| is_counted(&it.asked)).count();
        Ok([u64::try_from(requests)?, reviews])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The Namespace opts in to all features.
    AllFeatures,
    /// The Namespace opts in to none.
    NoFeature,
    /// All features were applied before, as in a reinvocation.
    Mutated,
}

pub(super) struct Case {
    pub(super) size: Size,
    pub(super) kind: Kind,
    pub(super) webhook: Requests,
    pub(super) baseline: Requests,
}

impl Case {
    /// Returns the case after a check that both systems respond correctly.
    pub(super) async fn checked(
        systems: &Systems<'_>,
        size: Size,
        kind: Kind,
    ) -> anyhow::Result<Self> {
        let (namespace, expect) = match kind {
            Kind::AllFeatures => (OPTED_IN, "\"patch\":"),
            Kind::NoFeature => (PLAIN, ALLOWED),
            Kind::Mutated => (OPTED_IN, ALLOWED),
        };
        let mut pod = reviews::pod(size, namespace)?;
        if kind == Kind::Mutated {
            let response = ask(&systems.webhook, &requests(&pod, "")).await?;
            pod = patched(&pod, &response)?;
        }
        let case = Self {
            size,
            kind,
            webhook: requests(&pod, expect),
            baseline: requests(&pod, ALLOWED),
        };
        let baseline = ask(&systems.baseline, &case.baseline).await?;
        ensure!(baseline["allowed"] == true, "baseline: {baseline}");
        let response = ask(&systems.webhook, &case.webhook).await?;
        let clean = response["allowed"] == true && response.get("warnings").is_none();
        ensure!(clean, "webhook: {response}");
        if kind == Kind::AllFeatures {
            check_mutation(&pod, &patched(&pod, &response)?)?;
        } else {
            ensure!(response.get("patch").is_none(), "a patch: {response}");
        }
        Ok(case)
    }

    pub(super) fn name(&self) -> String {
        let kind = match self.kind {
            Kind::AllFeatures => "all features",
            Kind::NoFeature => "no feature",
            Kind::Mutated => "already mutated",
        };
        format!("{:?}, {kind}", self.size).to_lowercase()
    }
}

pub(super) fn requests(pod: &Value, expect: &'static str) -> Requests {
    Requests::numbered(post(names::WEBHOOK_PATH, "", &reviews::review(pod)), expect)
}

pub(super) async fn ask(system: &Server, requests: &Requests) -> anyhow::Result<Value> {
    let response = requests
        .send(&mut system.target.connect().await?, 0)
        .await?;
    let mut review: Value = serde_json::from_str(&response.body)?;
    Ok(review["response"].take())
}

pub(super) fn patched(pod: &Value, response: &Value) -> anyhow::Result<Value> {
    let patch = response["patch"].as_str();
    let patch = BASE64.decode(patch.with_context(|| format!("no patch: {response}"))?)?;
    let patch: json_patch::Patch = serde_json::from_slice(&patch)?;
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch)?;
    Ok(patched)
}

/// Checks that all five features were applied, and that the other fields of the Pod are unchanged.
fn check_mutation(before: &Value, after: &Value) -> anyhow::Result<()> {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let has = |list: &Value, wanted: &Value| items(list).contains(wanted);
    let mount = json!({"name": VOLUME, "mountPath": "/etc/ssl/certs", "readOnly": true});
    let fips = json!({"name": names::FIPS_VARIABLE, "value": "true"});
    let landscape = json!({"name": names::LANDSCAPE_VARIABLE, "value": LANDSCAPE});
    let containers = |pod: &Value| {
        let lists = ["containers", "initContainers"].map(|it| items(&pod["spec"][it]));
        lists.concat()
    };
    for (container, earlier) in containers(after).iter().zip(&containers(before)) {
        let image = container["image"].as_str().unwrap_or_default();
        let variables = [
            vec![fips.clone(), landscape.clone()],
            items(&earlier["env"]),
        ];
        ensure!(
            image.starts_with("r0.landscape.example/ghcr/kyma-project/prod/")
                && variables
                    .concat()
                    .iter()
                    .all(|it| has(&container["env"], it))
                && has(&container["volumeMounts"], &mount)
                && container["resources"] == earlier["resources"],
            "a container that was not mutated: {container}"
        );
    }
    let (spec, metadata) = (&after["spec"], &after["metadata"]);
    let secret = json!({"name": names::PULL_SECRET});
    ensure!(
        items(&spec["volumes"])
            .iter()
            .any(|it| it["name"] == VOLUME)
            && has(&spec["imagePullSecrets"], &secret)
            && metadata["annotations"][names::MARKER] == "true"
            && metadata["managedFields"] == before["metadata"]["managedFields"],
        "a Pod that was not mutated: {metadata}"
    );
    Ok(())
}

const REVIEWS: &str = "rt_bootstrapper_admission_reviews_total";
const VOLUME: &str = "rt-bootstrapper-certs";
const ALLOWED: &str = "\"allowed\":true";
