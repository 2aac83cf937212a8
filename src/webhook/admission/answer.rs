//! The response to a review. It does not use the type of kube, which writes the patch as a list of numbers (kube #1781).
//! The size of all parts is limited: patch and UID by `policy`, warnings and audit annotation here.

use std::fmt::{self, Write as _};

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use base64_simd::STANDARD;
use policy::admission::{Decision, Finding, Patch, Reason};
use serde::Serialize;

use super::InternalError;

/// Maximum length of a warning in characters. The API server may truncate warnings of more than 256.
const WARNING_LENGTH: usize = 250;
/// Maximum number of warnings. The API server drops all warnings beyond 4096 characters in total.
const WARNINGS: usize = 16;
/// Maximum length of the audit annotation. `preview` prints the full list.
const AUDIT_LENGTH: usize = 1024;

/// The response about a Pod, which is always allowed.
#[derive(Debug, Default)]
pub(super) struct Answer {
    patch: Patch,
    warnings: Vec<String>,
    reasons: String,
}

impl Answer {
    pub(super) fn internal_error(error: InternalError) -> Self {
        Self {
            warnings: vec![error.to_string()],
            reasons: error.code().to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn decided(decision: Decision<'_>) -> Self {
        Self {
            warnings: warnings(&decision.findings),
            reasons: reasons(&decision.findings),
            patch: decision.patch,
        }
    }

    /// Returns the response, written in one pass. A serializer would check the patch for escapes, which base64 does not contain.
    pub(super) fn into_response(self, uid: &str) -> Response {
        let patch = self.patch.json();
        let capacity = 512 + self.reasons.len() + patch.map_or(0, <[u8]>::len) * 4 / 3;
        let mut body = Vec::with_capacity(capacity);
        body.extend_from_slice(
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"#,
        );
        push_json(&mut body, uid);
        body.extend_from_slice(br#","allowed":true"#);
        if let Some(patch) = patch {
            body.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
            STANDARD.encode_append(patch, &mut body);
            body.push(b'"');
        }
        if !self.warnings.is_empty() {
            body.extend_from_slice(br#","warnings":"#);
            push_json(&mut body, &self.warnings);
        }
        if !self.reasons.is_empty() {
            body.extend_from_slice(br#","auditAnnotations":{"reasons":"#);
            push_json(&mut body, &self.reasons);
            body.push(b'}');
        }
        body.extend_from_slice(b"}}");
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// Appends JSON. Writing strings and lists of strings cannot fail.
fn push_json(body: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let _infallible = serde_json::to_writer(body, value);
}

fn warnings(findings: &[Finding<'_>]) -> Vec<String> {
    findings
        .iter()
        .filter(|finding| finding.reason.warns())
        .take(WARNINGS)
        .map(|finding| {
            let mut warning = Warning::default();
            // The only error means that the text is truncated.
            let _cut = write!(warning, "{}: {}", finding.feature, finding.reason);
            warning.0
        })
        .collect()
}

/// A text that is truncated after [`WARNING_LENGTH`] characters. A reason may repeat a text of the Pod, which can be as
/// long as the body and longer when escaped. The text after the limit is never written.
#[derive(Default)]
struct Warning(String);

impl fmt::Write for Warning {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let mut characters = part.chars();
        let left = WARNING_LENGTH.saturating_sub(self.0.chars().count());
        self.0.extend(characters.by_ref().take(left));
        characters.next().map_or(Ok(()), |_cut| Err(fmt::Error))
    }
}

/// Returns `feature=Code`, once each, for the requested features; empty if none was requested.
fn reasons(findings: &[Finding<'_>]) -> String {
    let mut text = String::with_capacity(AUDIT_LENGTH / 2);
    let mut last = None;
    for finding in findings {
        let pair = (finding.feature, finding.reason.code());
        if finding.reason == Reason::NotRequested || last == Some(pair) || text.len() > AUDIT_LENGTH
        {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        for part in [pair.0.name(), "=", pair.1.name()] {
            text.push_str(part);
        }
        last = Some(pair);
    }
    text
}
