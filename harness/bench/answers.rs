//! Right answers first: who answers wrongly is not timed.

use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::reviews::{self, MIRROR, OPTED_IN, PLAIN, Size};
use super::subjects::{BUNDLE_PATH, LANDSCAPE, NAME, Subjects};

/// What a review is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Everything is asked for.
    AllFeatures,
    /// Nothing is asked for.
    NoFeature,
    /// Everything is asked for and has been done, as in a reinvocation.
    Mutated,
}

/// A kind of review in one size, and the bytes of it.
pub(super) struct Case {
    pub(super) size: Size,
    pub(super) kind: Kind,
    pub(super) body: String,
}

impl Case {
    /// For a table.
    pub(super) fn name(&self) -> String {
        let kind = match self.kind {
            Kind::AllFeatures => "all features",
            Kind::NoFeature => "no feature",
            Kind::Mutated => "already mutated",
        };
        format!("{}, {kind}", self.size.name())
    }
}

/// All cases, each answered rightly by both.
pub(super) async fn cases(subjects: &Subjects) -> anyhow::Result<Vec<Case>> {
    let door = Door::new(&std::fs::read(subjects.authority())?, subjects)?;
    let mut cases = Vec::new();
    for (size, kind) in CASES {
        let namespace = if kind == Kind::NoFeature {
            PLAIN
        } else {
            OPTED_IN
        };
        let mut pod = reviews::pod(size, namespace);
        if kind == Kind::Mutated {
            let answer = door.webhook(&reviews::review(&pod, namespace)).await?;
            pod = patched(&pod, &answer)?;
        }
        let case = Case {
            size,
            kind,
            body: reviews::review(&pod, namespace),
        };
        door.check(&case, &pod).await.with_context(|| case.name())?;
        cases.push(case);
    }
    Ok(cases)
}

/// The way to both.
struct Door {
    client: reqwest::Client,
    noop: SocketAddr,
    webhook: SocketAddr,
}

impl Door {
    fn new(authority: &[u8], subjects: &Subjects) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(authority)?])
            // The port of a URL wins over this one.
            .resolve(NAME, ([127, 0, 0, 1], 0).into())
            .build()?;
        Ok(Self {
            client,
            noop: subjects.noop.address,
            webhook: subjects.webhook.address,
        })
    }

    async fn check(&self, case: &Case, pod: &Value) -> anyhow::Result<()> {
        let noop = self.ask(self.noop, &case.body).await.context("the no-op")?;
        ensure!(noop["allowed"] == true, "the no-op's answer: {noop}");
        let answer = self.webhook(&case.body).await?;
        if case.kind == Kind::AllFeatures {
            return is_fitted(pod, &patched(pod, &answer)?);
        }
        ensure!(answer.get("patch").is_none(), "a patch: {answer}");
        Ok(())
    }

    async fn webhook(&self, body: &str) -> anyhow::Result<Value> {
        let answer = self.ask(self.webhook, body).await.context("the webhook")?;
        ensure!(
            answer["allowed"] == true && answer.get("warnings").is_none(),
            "the webhook's answer: {answer}"
        );
        Ok(answer)
    }

    /// The `response` of an answer.
    async fn ask(&self, address: SocketAddr, body: &str) -> anyhow::Result<Value> {
        let url = format!("https://{NAME}:{}{}", address.port(), names::WEBHOOK_PATH);
        let answer = self.client.post(url).body(body.to_owned()).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{status}: {text}");
        let review: Value = serde_json::from_str(&text)?;
        Ok(review["response"].clone())
    }
}

/// The Pod with the patch of an answer.
fn patched(pod: &Value, answer: &Value) -> anyhow::Result<Value> {
    let Some(patch) = answer["patch"].as_str() else {
        bail!("no patch: {answer}");
    };
    let patch: json_patch::Patch = serde_json::from_slice(&BASE64.decode(patch)?)?;
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch)?;
    Ok(patched)
}

/// Whether all five features are there, and whatever was there before as well.
fn is_fitted(before: &Value, after: &Value) -> anyhow::Result<()> {
    let holds = |list: &Value, wanted: Value| {
        list.as_array()
            .is_some_and(|members| members.contains(&wanted))
    };
    for list in ["containers", "initContainers"] {
        let containers = after["spec"][list].as_array().into_iter().flatten();
        let earlier = before["spec"][list].as_array().into_iter().flatten();
        for (container, earlier) in containers.zip(earlier) {
            let mount = json!({"name": "rt-bootstrapper-certs", "mountPath": BUNDLE_PATH, "readOnly": true});
            let fips = json!({"name": names::FIPS_VARIABLE, "value": "true"});
            let landscape = json!({"name": names::LANDSCAPE_VARIABLE, "value": LANDSCAPE});
            let image = container["image"].as_str().unwrap_or_default();
            let fitted = image.starts_with(&format!("{MIRROR}/kyma/kyma-project/prod/"))
                && holds(&container["env"], fips)
                && holds(&container["env"], landscape)
                && holds(&container["volumeMounts"], mount)
                && earlier["env"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .all(|it| holds(&container["env"], it.clone()))
                && container["resources"] == earlier["resources"];
            ensure!(fitted, "a container that was not fitted: {container}");
        }
    }
    let bundle = &after["spec"]["volumes"]
        .as_array()
        .and_then(|volumes| volumes.last())
        .unwrap_or(&Value::Null)["name"];
    let secret = holds(
        &after["spec"]["imagePullSecrets"],
        json!({"name": names::PULL_SECRET}),
    );
    let marker = &after["metadata"]["annotations"][names::MARKER];
    ensure!(
        bundle == "rt-bootstrapper-certs" && secret && marker == "true",
        "volume {bundle}, pull Secret {secret}, marker {marker}"
    );
    ensure!(
        after["metadata"]["managedFields"] == before["metadata"]["managedFields"],
        "fields that are none of ours changed"
    );
    Ok(())
}

const CASES: [(Size, Kind); 5] = [
    (Size::Typical, Kind::AllFeatures),
    (Size::Small, Kind::AllFeatures),
    (Size::Large, Kind::AllFeatures),
    (Size::Typical, Kind::NoFeature),
    (Size::Typical, Kind::Mutated),
];
