//! The answer to a review. Our own type: kube's writes the patch as a list of numbers (kube #1781).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::admission::{Decision, Finding, Reason};
use serde::Serialize;

use super::Fault;

/// Longer warnings may be cut by the API server.
const WARNING_LENGTH: usize = 120;
/// The API server drops all warnings beyond 4096 characters in sum.
const WARNINGS: usize = 16;
/// An audit annotation is for a glance; the full list is what `preview` prints.
const AUDIT_LENGTH: usize = 1024;

/// What is said of a Pod. It is always allowed.
#[derive(Debug, Default)]
pub(super) struct Answer {
    patch: Option<String>,
    warnings: Vec<String>,
    reasons: String,
    fault: Option<Fault>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Body<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
}

impl Answer {
    pub(super) fn fault(fault: Fault) -> Self {
        Self {
            warnings: vec![fault.warning().to_owned()],
            reasons: fault.code().to_owned(),
            fault: Some(fault),
            ..Self::default()
        }
    }

    pub(super) fn decided(decision: &Decision<'_>) -> Self {
        Self {
            patch: decision.patch.json().map(str::to_owned),
            warnings: warnings(&decision.findings),
            reasons: reasons(&decision.findings),
            fault: None,
        }
    }

    pub(super) fn own_fault(&self) -> Option<Fault> {
        self.fault
    }

    pub(super) fn into_response(self, uid: &str) -> Response {
        let mut audit_annotations = BTreeMap::new();
        if !self.reasons.is_empty() {
            audit_annotations.insert("reasons", self.reasons);
        }
        let envelope = Envelope {
            api_version: "admission.k8s.io/v1",
            kind: "AdmissionReview",
            response: Body {
                uid,
                allowed: true,
                patch_type: self.patch.is_some().then_some("JSONPatch"),
                patch: self.patch.map(|patch| STANDARD.encode(patch)),
                warnings: self.warnings,
                audit_annotations,
            },
        };
        match serde_json::to_vec(&envelope) {
            Ok(body) => {
                let json = HeaderValue::from_static("application/json");
                ([(CONTENT_TYPE, json)], body).into_response()
            }
            // Strings, a flag and a map of strings: writing them cannot fail.
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

fn warnings(findings: &[Finding<'_>]) -> Vec<String> {
    findings
        .iter()
        .filter(|finding| finding.reason.warns())
        .take(WARNINGS)
        .map(|finding| {
            let text = format!("{}: {}", finding.feature, finding.reason);
            text.chars().take(WARNING_LENGTH).collect()
        })
        .collect()
}

/// `feature=Code`, once each, for what was asked for; empty if nothing was.
fn reasons(findings: &[Finding<'_>]) -> String {
    let mut text = String::new();
    let mut last = None;
    for finding in findings {
        let pair = (finding.feature, finding.reason.code());
        if finding.reason == Reason::NotRequested || last == Some(pair) || text.len() > AUDIT_LENGTH
        {
            continue;
        }
        let separator = if text.is_empty() { "" } else { " " };
        let _infallible = write!(text, "{separator}{}={}", pair.0, pair.1);
        last = Some(pair);
    }
    text
}
