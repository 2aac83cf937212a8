//! The one call that the signal makes: a merge patch of the metadata of a Runtime.
//!
//! Invariants: the patch names the signal's key and nothing else, so it can undo nobody's change and needs no
//! precondition; it is safe to repeat. The request is sent by hand, because kube's typed calls drop the `Retry-After`
//! of an answer that is no `Status`, and API servers that are busy answer so.

use std::time::Duration;

use api::kcp::CONTROLLER_FIELD_MANAGER;
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::core::Request;
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde_json::Value;

use super::metrics::Failure;
use super::runtime::{Marks, RuntimeView};

/// Why a Runtime could not be written. All are tried again as long as there is reason to.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// No rights, or an admission plugin. The text is the API server's and bounded.
    #[error("forbidden: {0}")]
    Forbidden(String),
    #[error("Runtime not found")]
    Gone,
    #[error("conflict: Runtime written by another client")]
    Conflict,
    #[error("API server returned 429")]
    Throttled(Option<Duration>),
    #[error("API server returned {code}")]
    Server {
        code: u16,
        retry_after: Option<Duration>,
    },
    #[error("API server returned {code}: {message}")]
    Refused { code: u16, message: String },
    /// An admission plugin took the key away, or the answer is of another object.
    #[error("Runtime lacks the keys that were set")]
    Ineffective,
    #[error("invalid response of the API server")]
    Unreadable(#[source] serde_json::Error),
    #[error("request to the API server failed")]
    Transport(#[source] kube::Error),
}

impl WriteError {
    /// What it counts as.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Forbidden(_) => Failure::Forbidden,
            Self::Gone => Failure::Gone,
            Self::Conflict => Failure::Conflict,
            Self::Throttled(_) => Failure::Throttled,
            Self::Server { .. } => Failure::Server,
            Self::Refused { .. } => Failure::Refused,
            Self::Ineffective => Failure::Ineffective,
            Self::Unreadable(_) => Failure::Unreadable,
            Self::Transport(_) => Failure::Transport,
        }
    }

    /// What the API server asked us to wait, bounded: a wrong figure must not silence a runtime for a day.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled(wait)
            | Self::Server {
                retry_after: wait, ..
            } => wait.map(|wait| wait.min(LONGEST_WAIT)),
            _ => None,
        }
    }

    /// Whether it is nothing to speak of: the watch tells what to do, if anything, or it passes by itself.
    pub(super) fn is_expected(&self) -> bool {
        matches!(self, Self::Gone | Self::Conflict | Self::Throttled(_))
    }
}

/// Patches the Runtime and gives what it carries from now on.
pub(super) async fn write(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<Marks, WriteError> {
    let parameters = PatchParams {
        field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    // Of the answer, the metadata is all that is of interest.
    let request = Request::new(RuntimeView::url_path(&(), Some(namespace)))
        .patch_metadata(name, &parameters, &Patch::Merge(patch))
        .map_err(|error| WriteError::Transport(kube::Error::BuildRequest(error)))?;
    let answer = client.send(request.map(Body::from)).await;
    let (head, body) = answer.map_err(WriteError::Transport)?.into_parts();
    let bytes = body.collect_bytes().await;
    let bytes = bytes.map_err(WriteError::Transport)?;
    if !head.status.is_success() {
        return Err(refused(&Response::from_parts(head, ()), &bytes));
    }
    let view: RuntimeView = serde_json::from_slice(&bytes).map_err(WriteError::Unreadable)?;
    Ok(Marks::read(&view))
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
struct Details {
    #[serde(default, rename = "retryAfterSeconds")]
    retry_after: u64,
}

fn refused(answer: &Response<()>, body: &[u8]) -> WriteError {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let header = answer.headers().get(RETRY_AFTER);
    let seconds = header
        .and_then(|it| it.to_str().ok()?.parse().ok())
        .unwrap_or(status.details.retry_after);
    let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds));
    let message = || status.message.chars().take(LONGEST_TEXT).collect();
    match answer.status() {
        StatusCode::FORBIDDEN => WriteError::Forbidden(message()),
        StatusCode::NOT_FOUND => WriteError::Gone,
        StatusCode::CONFLICT => WriteError::Conflict,
        StatusCode::TOO_MANY_REQUESTS => WriteError::Throttled(retry_after),
        code if code.is_server_error() => WriteError::Server {
            code: code.as_u16(),
            retry_after,
        },
        code => WriteError::Refused {
            code: code.as_u16(),
            message: message(),
        },
    }
}

/// A proxy may answer with a page.
const LONGEST_TEXT: usize = 400;

const LONGEST_WAIT: Duration = Duration::from_mins(2);
