//! The mirror's calls to the API server.
//!
//! Invariants: each is safe to repeat; a removal names uid and version, so that what somebody put in the copy's place
//! survives; neither an error nor a `Debug` text holds anything that the API server quoted from a Secret. Requests
//! are sent as text and parsed here, because kube's typed calls log an answer that they cannot parse.

use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET_COPY_LABEL, SECRET_MANAGER};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use kube::core::response::Status;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource};
use policy::mirror::{Observed, RemovalCause};
use serde_json::{Value, json};

use super::found::{Found, Identity, SecretView};
use super::state::{Job, Source, Work};
use super::usage;

/// What a job came to.
#[derive(Debug)]
pub(super) enum Done {
    /// The copy is as it should be; this is what the API server says of it.
    Wrote(Found),
    Removed,
    /// The copy stays: this Pod uses it.
    InUse(String),
    Reported,
}

/// Why a job did not come to its end. All are tried again as long as the decision stays the same.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    /// No rights, a quota, or an admission plugin. The text is the API server's: authorizers and quotas speak of
    /// names and counts.
    #[error("forbidden: {0}")]
    Forbidden(String),
    #[error("conflict: Secret written by another client")]
    Changed,
    #[error("namespace not found or terminating")]
    NamespaceGone,
    /// The message is left out: it may quote what was sent.
    #[error("API server returned {code} ({reason})")]
    Refused { code: u16, reason: String },
    #[error("copy differs after the write")]
    NotTaken,
    #[error("invalid response of the API server")]
    Unreadable,
    #[error("request to the API server failed")]
    Transport(#[source] kube::Error),
}

impl ApplyError {
    /// What metrics call it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "forbidden",
            Self::Changed => "changed",
            Self::NamespaceGone => "namespace_gone",
            Self::Refused { .. } => "refused",
            Self::NotTaken => "not_taken",
            Self::Unreadable => "unreadable",
            Self::Transport(_) => "transport",
        }
    }

    /// Whether it is nothing to speak of: the next event tells what to do, if anything.
    pub(super) fn is_expected(&self) -> bool {
        matches!(self, Self::Changed)
    }

    pub(super) fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::refused(&status),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Unreadable,
            other => Self::Transport(other),
        }
    }

    fn refused(status: &Status) -> Self {
        let details = status.details.as_ref();
        let terminating = details.is_some_and(|it| {
            it.causes
                .iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
        });
        match status.code {
            _ if terminating => Self::NamespaceGone,
            403 => Self::Forbidden(status.message.chars().take(LONGEST_TEXT).collect()),
            // Only what has to lie in the namespace is ever created, so it is the namespace that is missing.
            404 => Self::NamespaceGone,
            409 => Self::Changed,
            code => Self::Refused {
                code,
                reason: status.reason.clone(),
            },
        }
    }
}

/// Does jobs.
#[derive(Clone)]
pub(super) struct Applier {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
}

impl Applier {
    pub(super) async fn run(&self, job: &Job) -> Result<Done, ApplyError> {
        match &job.work {
            Work::Apply(source) => self.apply(job, source).await,
            Work::Recreate(identity, source) => {
                self.remove(job, identity).await?;
                self.apply(job, source).await
            }
            Work::Remove(identity, cause) => {
                if *cause == RemovalCause::NotNeeded
                    && let Some(pod) =
                        usage::user_of(&self.client, &job.namespace, &job.secret).await?
                {
                    return Ok(Done::InUse(pod));
                }
                self.remove(job, identity).await?;
                Ok(Done::Removed)
            }
            Work::Report(identity) => self.report(job, identity).await,
        }
    }

    async fn apply(&self, job: &Job, source: &Source) -> Result<Done, ApplyError> {
        let request = Request::new(path(job))
            .patch(
                &job.secret,
                &PatchParams::apply(SECRET_MANAGER).force(),
                &Patch::Apply(body(job, source)),
            )
            .map_err(unsendable)?;
        let text = self.client.request_text(request).await;
        let text = text.map_err(ApplyError::of)?;
        let view: SecretView = serde_json::from_str(&text).map_err(|_| ApplyError::Unreadable)?;
        let (_, found) = Found::read(view);
        // Somebody else's admission plugin may change what we write: trying at full speed would not end.
        if found.observed(Some(source.digest)) == Observed::Current {
            Ok(Done::Wrote(found))
        } else {
            Err(ApplyError::NotTaken)
        }
    }

    async fn remove(&self, job: &Job, identity: &Identity) -> Result<(), ApplyError> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: identity.uid.clone(),
                resource_version: identity.version.clone(),
            }),
            ..DeleteParams::default()
        };
        let request = Request::new(path(job))
            .delete(&job.secret, &parameters)
            .map_err(unsendable)?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(ApplyError::of(error)),
        }
    }

    async fn report(&self, job: &Job, identity: &Identity) -> Result<Done, ApplyError> {
        let secret = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(job.namespace.clone()),
            name: Some(job.secret.clone()),
            uid: identity.uid.clone(),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: "PullSecretConflict".to_owned(),
            note: Some(format!(
                "Secret {} of another client is not overwritten, although Pods of this namespace need the pull Secret; \
                 delete or rename it to get the copy",
                job.secret
            )),
            action: "CopyPullSecret".to_owned(),
            secondary: None,
        };
        let published = self.recorder.publish(&event, &secret).await;
        published.map_err(ApplyError::of)?;
        Ok(Done::Reported)
    }
}

fn path(job: &Job) -> String {
    Secret::url_path(&(), Some(&job.namespace))
}

/// The whole copy. Whatever stands elsewhere in the Secret (annotations, other labels) belongs to others.
fn body(job: &Job, source: &Source) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": job.secret,
            "namespace": job.namespace,
            "labels": {PULL_SECRET_COPY_LABEL: "true"},
        },
        "type": DOCKER_CONFIG_TYPE,
        "data": {DOCKER_CONFIG_KEY: STANDARD.encode(&source.content.docker_config)},
    })
}

pub(super) fn unsendable(error: kube::core::request::Error) -> ApplyError {
    ApplyError::Transport(kube::Error::BuildRequest(error))
}

/// A proxy may answer with a page.
const LONGEST_TEXT: usize = 400;
