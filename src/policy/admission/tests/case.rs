//! The format of a golden file, and its execution. `harness/e2e/suites/fallback_policy.rs` compiles this file as well.

use std::collections::BTreeMap;

use api::config::Document;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admission::review::{self, Subject};
use crate::admission::*;
use crate::image::Keyring;

/// A golden file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Case {
    /// Sentence that describes the behavior.
    pub(super) shows: String,
    pub(super) config: Value,
    #[serde(default)]
    pub(super) given: Given,
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
    /// The resulting Pod; absent if it is unchanged.
    #[serde(default)]
    pub(super) gives: Option<Value>,
    /// The findings as `feature Code`, without `NotRequested`, in their order.
    pub(super) because: Vec<String>,
    /// The warnings; not compared if absent.
    #[serde(default)]
    pub(super) warnings: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Given {
    pub(super) operation: String,
    pub(super) sub_resource: Option<String>,
    pub(super) namespace: String,
    /// Annotations of the Namespace; null if the snapshot does not contain the Namespace.
    pub(super) namespace_annotations: Option<BTreeMap<String, String>>,
    pub(super) namespace_labels: BTreeMap<String, String>,
    pub(super) auths: Option<Vec<String>>,
    /// Whether the pull Secret was observed and no kubelet can parse it.
    pub(super) invalid_pull_secret: bool,
    pub(super) trust_bundle: String,
    pub(super) landscape: Option<String>,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            operation: "CREATE".into(),
            sub_resource: None,
            namespace: "shop".into(),
            namespace_annotations: Some(BTreeMap::new()),
            namespace_labels: BTreeMap::new(),
            auths: None,
            invalid_pull_secret: false,
            trust_bundle: "present".into(),
            landscape: None,
        }
    }
}

/// The decision, without references to the review.
pub(super) struct Outcome {
    pub(super) pod: Value,
    pub(super) patch: Option<Value>,
    pub(super) because: Vec<String>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn configuration(document: &Value, landscape: Option<&str>) -> Configuration {
    let settings = Settings {
        landscape: landscape.map(str::to_owned),
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    Configuration::new(&Document::parse(&document.to_string()).unwrap(), &settings).unwrap()
}

impl Case {
    /// Makes the decision, and applies its patch with `json-patch`.
    pub(super) fn run(&self, object: &Value) -> Outcome {
        let given = &self.given;
        let configuration = configuration(&self.config, given.landscape.as_deref());
        let namespace = given
            .namespace_annotations
            .as_ref()
            .map(|entries| Namespace {
                annotations: Annotations::collect(
                    entries
                        .iter()
                        .map(|(key, value)| (key.as_str(), value.as_str())),
                ),
                labels: given.namespace_labels.clone(),
            });
        let context = Context {
            configuration: &configuration,
            namespace: namespace.as_ref(),
            pull_secret: &given.pull_secret(),
            trust_bundle: given.trust_bundle(),
            fallback_policy: false,
        };
        let body = given.review(object, &self.old_object).to_string();
        decide_on(&body, &context, object)
    }
}

impl Given {
    pub(super) fn pull_secret(&self) -> PullSecret {
        if self.invalid_pull_secret {
            return PullSecret::Invalid;
        }
        let Some(auths) = &self.auths else {
            return PullSecret::Unknown;
        };
        let entries: BTreeMap<_, _> = auths
            .iter()
            .map(|host| (host, json!({"auth": "dTpw"})))
            .collect();
        let document = json!({ "auths": entries }).to_string();
        PullSecret::Known(Keyring::parse(document.as_bytes()).unwrap())
    }

    pub(super) fn trust_bundle(&self) -> TrustBundlePresence {
        match self.trust_bundle.as_str() {
            "present" => TrustBundlePresence::Present,
            "absent" => TrustBundlePresence::Absent,
            "unserved" => TrustBundlePresence::Unserved,
            "not projected" => TrustBundlePresence::NotProjected,
            "unknown" => TrustBundlePresence::Unknown,
            other => panic!("trustBundle: {other}"),
        }
    }

    pub(super) fn review(&self, object: &Value, old: &Value) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "subResource": self.sub_resource,
                "namespace": self.namespace,
                "operation": self.operation,
                "object": object,
                "oldObject": old,
            },
        })
    }
}

pub(super) fn decide_on(body: &str, context: &Context<'_>, object: &Value) -> Outcome {
    let review = review::parse(body.as_bytes()).unwrap();
    let Subject::Pod(request) = &review.subject else {
        panic!("{:?}", review.subject);
    };
    let decision = decide(request, context);
    let patch: Option<Value> = decision
        .patch
        .json()
        .map(|text| serde_json::from_slice(text).unwrap());
    let mut pod = object.clone();
    if let Some(patch) = &patch {
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    Outcome {
        pod,
        patch,
        because: decision
            .findings
            .iter()
            .filter(|it| it.reason != Reason::NotRequested)
            .map(|it| format!("{} {}", it.feature, it.reason.code().name()))
            .collect(),
        warnings: decision
            .findings
            .iter()
            .filter(|it| it.reason.warns())
            .map(|it| it.reason.to_string())
            .collect(),
    }
}
