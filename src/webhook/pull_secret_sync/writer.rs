//! Requests to the API server: write and delete copies, list Pods, report conflicts.
//!
//! Each request is safe to repeat. Neither an error nor a `Debug` text contains a text that the API server quotes from a
//! Secret. Responses are requested as text and parsed here, because the typed calls of kube log a response that they cannot
//! parse.

use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET_COPY_LABEL, SECRET_MANAGER};
use base64_simd::STANDARD;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Resource as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::response::Status;
use kube::core::{Request, request};
use kube::runtime::events::{Event, EventType};
use partial_json::Text;
use policy::admission::pod::Named;
use policy::admission::review::MAX_LIST_ITEMS;
use policy::copies::{Observed, RemovalCause};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use super::PullSecretSync;
use super::secret::{Digest, SecretState, SecretView};
use super::state::{CopyAction, CopyTask};
use crate::UNFINISHED;
use crate::snapshot::SecretContent;

/// Maximum length of a text of the API server in an error, in characters. A proxy may respond with a page.
const LONGEST_TEXT: usize = 400;

/// Maximum number of Pods in one page. A Pod has some kilobytes, and a hostile Pod may have megabytes.
const PAGE: u32 = 10;

/// Result of a task.
#[derive(Debug)]
pub(super) enum WriteResult {
    /// The copy is in the desired state; `None` means that there is no copy.
    Written(Option<SecretState>),
    /// The copy stays, because this Pod uses it.
    InUse(String),
    Reported,
}

/// Reason why a task failed. It is retried as long as the decision stays the same.
#[derive(Debug, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub(super) enum WriteError {
    /// A permission is missing, or a quota or an admission plugin rejects the request. The text of the API server contains
    /// names and counts.
    #[error("forbidden: {0}")]
    Forbidden(String),
    #[error("conflict: Secret written by another client")]
    Changed,
    #[error("namespace not found or terminating")]
    NamespaceGone,
    /// The message is omitted, because it may quote the request.
    #[error("API server returned {code} ({reason})")]
    Refused { code: u16, reason: String },
    /// An admission plugin of the cluster may change the written object.
    #[error("copy differs after the write")]
    NotTaken,
    #[error("invalid response of the API server")]
    Unreadable,
    #[error("request to the API server failed")]
    Transport(#[source] kube::Error),
}

impl WriteError {
    /// Result of [`reason`](Self::reason) for [`Forbidden`](Self::Forbidden).
    pub(super) const FORBIDDEN: &str = "forbidden";

    /// Returns the label value of the error in metrics.
    pub(super) fn reason(&self) -> &'static str {
        self.into()
    }

    fn refused(status: &Status) -> Self {
        let details = status.details.iter();
        let mut causes = details.flat_map(|it| &it.causes);
        match status.code {
            _ if causes.any(|cause| cause.reason == "NamespaceTerminating") => Self::NamespaceGone,
            403 => Self::Forbidden(status.message.chars().take(LONGEST_TEXT).collect()),
            // An apply creates the Secret, so a 404 means that the namespace does not exist.
            404 => Self::NamespaceGone,
            409 => Self::Changed,
            code => Self::Refused {
                code,
                reason: status.reason.clone(),
            },
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::refused(&status),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Unreadable,
            other => Self::Transport(other),
        }
    }
}

impl From<request::Error> for WriteError {
    fn from(error: request::Error) -> Self {
        Self::Transport(kube::Error::BuildRequest(error))
    }
}

impl PullSecretSync {
    pub(super) async fn execute(&self, task: &CopyTask) -> Result<WriteResult, WriteError> {
        match &task.action {
            CopyAction::Create(source) => self.apply(task, source, false).await,
            CopyAction::Update(source) => self.apply(task, source, true).await,
            CopyAction::Recreate(identity, source) => {
                self.remove(task, identity).await?;
                self.apply(task, source, false).await
            }
            CopyAction::Remove(identity, cause) => {
                if *cause == RemovalCause::NotNeeded
                    && let Some(pod) = self.user_of(task).await?
                {
                    return Ok(WriteResult::InUse(pod));
                }
                self.remove(task, identity).await?;
                Ok(WriteResult::Written(None))
            }
            CopyAction::Report(uid) => self.report(task, uid.clone()).await,
        }
    }

    /// Applies a copy. Annotations and other labels of the Secret belong to other clients. With `force`, fields of the copy
    /// that other clients own are taken over. Without it, a Secret of another client is a conflict, until the watch
    /// observes it.
    async fn apply(
        &self,
        task: &CopyTask,
        source: &SecretContent,
        force: bool,
    ) -> Result<WriteResult, WriteError> {
        let copy = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": task.secret,
                "namespace": task.namespace,
                "labels": {PULL_SECRET_COPY_LABEL: "true"},
            },
            "type": DOCKER_CONFIG_TYPE,
            "data": {DOCKER_CONFIG_KEY: STANDARD.encode_to_string(&source.docker_config)},
        });
        let parameters = PatchParams {
            force,
            ..PatchParams::apply(SECRET_MANAGER)
        };
        let request = secrets(task).patch(&task.secret, &parameters, &Patch::Apply(copy))?;
        let text = self.client.request_text(request).await?;
        let view: SecretView = serde_json::from_str(&text).map_err(|_| WriteError::Unreadable)?;
        let (_, state) = SecretState::read(view);
        if state.observed(Some(Digest::of(&source.docker_config))) == Observed::Current {
            Ok(WriteResult::Written(Some(state)))
        } else {
            Err(WriteError::NotTaken)
        }
    }

    async fn remove(&self, task: &CopyTask, identity: &Preconditions) -> Result<(), WriteError> {
        let parameters = DeleteParams::default().preconditions(identity.clone());
        let request = secrets(task).delete(&task.secret, &parameters)?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn report(
        &self,
        task: &CopyTask,
        uid: Option<String>,
    ) -> Result<WriteResult, WriteError> {
        let secret = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(task.namespace.clone()),
            name: Some(task.secret.clone()),
            uid,
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: "PullSecretConflict".to_owned(),
            note: Some(format!(
                "Secret {} of another client is not overwritten, although Pods of this namespace need the pull Secret; \
                 delete or rename it to get the copy",
                task.secret
            )),
            action: "CopyPullSecret".to_owned(),
            secondary: None,
        };
        self.recorder.publish(&event, &secret).await?;
        Ok(WriteResult::Reported)
    }

    /// Returns the name of an unfinished Pod of the namespace that uses the Secret. The list ends with the first such Pod.
    async fn user_of(&self, task: &CopyTask) -> Result<Option<String>, WriteError> {
        let mut parameters = ListParams::default().fields(UNFINISHED).limit(PAGE);
        loop {
            let _permit = self.page.acquire().await;
            let request = Request::new(Pod::url_path(&(), Some(&task.namespace)));
            let text = self.client.request_text(request.list(&parameters)?).await?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(|_| WriteError::Unreadable)?;
            let mut pods = page.items.into_iter().flatten();
            if let Some(user) = pods.find_map(|pod| user(pod.get(), task)) {
                return Ok(Some(user));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(None),
            }
        }
    }
}

fn secrets(task: &CopyTask) -> Request {
    Request::new(Secret::url_path(&(), Some(&task.namespace)))
}

/// A page of Pods.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// The fields of a Pod that are read.
#[derive(Deserialize)]
struct PodView<'a> {
    #[serde(default, borrow)]
    metadata: PodMetadata<'a>,
    #[serde(default, borrow)]
    spec: PodSpec<'a>,
}

#[derive(Default, Deserialize)]
struct PodMetadata<'a> {
    #[serde(default, borrow)]
    name: Text<'a>,
    annotations: Option<PodAnnotations>,
}

#[derive(Deserialize)]
struct PodAnnotations {
    #[serde(rename = "rt-bootstrapper.kyma-project.io/defaulted")]
    marker: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec<'a> {
    #[serde(borrow)]
    image_pull_secrets: Option<Vec<Named<'a>>>,
}

/// Returns the name of the Pod if it uses the Secret. A Pod that cannot be parsed counts, so that the copy stays in case of doubt.
/// So does a Pod that the webhook changed, even without a reference, unless the name of the Secret is a former name: Pods that were
/// changed since then contain the configured name.
fn user(pod: &str, task: &CopyTask) -> Option<String> {
    let Ok(pod) = partial_json::from_str::<PodView<'_>>(pod, MAX_LIST_ITEMS) else {
        return Some("(not readable)".to_owned());
    };
    let annotations = pod.metadata.annotations;
    let mut entries = pod.spec.image_pull_secrets.iter().flatten();
    let is_changed = annotations.is_some_and(|it| it.marker.is_some());
    let is_user =
        (is_changed && !task.is_former) || entries.any(|entry| *entry.name == task.secret);
    is_user.then(|| pod.metadata.name.to_string())
}
