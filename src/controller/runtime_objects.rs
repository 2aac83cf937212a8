//! Reads and writes of objects on a runtime, for all controllers of the crate.
//!
//! Invariant: an object that must not be read is a missing permission, not an absent object. Not in here: the
//! selection of objects, and the decisions that follow from them.

use std::time::Duration;

use component_base::telemetry::error_chain;
use futures::future::join_all;
use policy::sync::observed::NamespaceState;
use policy::sync::plan::{Action, Step};
use policy::sync::status::Failure;
use policy::sync::target::Target;
use serde_json::{Value, json};

use crate::clients::{CallError, Remote};

/// Maximum length of the UID of a cluster. The API server would reject a status with a longer UID.
const MAX_UID: usize = 64;

/// The result of a read; `Forbidden` contains the missing permission.
pub(crate) enum Read {
    Found(Option<Value>),
    Forbidden(String),
}

/// Reads an object.
///
/// # Errors
/// The runtime does not return the object, for another reason than a missing permission.
pub(crate) async fn read(remote: &Remote, target: &Target) -> Result<Read, CallError> {
    match remote.get(&target.path()).await {
        Err(error) if error.is_forbidden() => Ok(Read::Forbidden(permission("get", target))),
        found => found.map(Read::Found),
    }
}

/// Returns the UID of the Namespace `kube-system`. Returns `None` also if reading it is forbidden, because the
/// cluster is not identified then.
///
/// # Errors
/// The runtime does not return the Namespace.
pub(crate) async fn cluster_uid(remote: &Remote) -> Result<Option<String>, CallError> {
    let found = match remote.get("/api/v1/namespaces/kube-system").await {
        Err(error) if error.is_forbidden() => None,
        response => response?,
    };
    let uid = found.as_ref().and_then(|it| it.pointer("/metadata/uid"));
    let uid = uid.and_then(Value::as_str).map(str::to_owned);
    // Operators use the UID in commands of a shell, and the API server of the runtime may return any text.
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    Ok(uid.filter(|uid| uid.len() <= MAX_UID && uid.bytes().all(is_plain)))
}

/// Returns the state of a Namespace.
///
/// # Errors
/// The runtime does not return the Namespace.
pub(crate) async fn namespace_state(
    remote: &Remote,
    name: &str,
) -> Result<NamespaceState, CallError> {
    let found = remote.get(&format!("/api/v1/namespaces/{name}")).await?;
    Ok(match found {
        None => NamespaceState::Missing,
        Some(found) if found.pointer("/metadata/deletionTimestamp").is_some() => {
            NamespaceState::Terminating
        }
        Some(_) => NamespaceState::Active,
    })
}

/// Formats a permission as `verb resource.group`.
pub(crate) fn permission(verb: &str, target: &Target) -> String {
    match target.resource() {
        ("", plural) => format!("{verb} {plural}"),
        (group, plural) => format!("{verb} {plural}.{group}"),
    }
}

/// A failed write.
#[derive(Clone)]
pub(crate) struct WriteFailure {
    pub(crate) failure: Failure,
    /// Whether the same write may succeed later without any change.
    pub(crate) is_transient: bool,
    /// Whether every other request would fail, too; see [`crate::clients::CallError::concerns_all_calls`].
    pub(crate) concerns_all_calls: bool,
    /// Delay that the API server requires.
    pub(crate) retry_after: Option<Duration>,
}

impl WriteFailure {
    /// Returns the failure that concerns all requests, or else the first one, with the longest required delay of all.
    pub(crate) fn of(failures: impl IntoIterator<Item = Self>) -> Option<Self> {
        failures.into_iter().reduce(|first, next| {
            let retry_after = first.retry_after.max(next.retry_after);
            let worst = if next.concerns_all_calls && !first.concerns_all_calls {
                next
            } else {
                first
            };
            Self {
                retry_after,
                ..worst
            }
        })
    }
}

/// Maximum number of concurrent writes of one step. Each namespace of a runtime may contain a copy of the pull Secret.
const CONCURRENT_WRITES: usize = 32;

/// Writer to one runtime with a field manager. `count` counts each write with its success.
pub(crate) struct Writer<'a, F> {
    pub(crate) remote: &'a Remote,
    pub(crate) manager: &'a str,
    pub(crate) count: F,
}

impl<F: Fn(&Action, bool)> Writer<'_, F> {
    /// Applies steps up to the first step in which an action fails. The actions of a step run concurrently.
    /// Successful actions are added to `done`.
    ///
    /// # Errors
    /// See [`WriteFailure::of`].
    pub(crate) async fn apply(
        &self,
        steps: &[Step],
        done: &mut Vec<Action>,
    ) -> Result<(), WriteFailure> {
        for step in steps {
            self.apply_step(step, done).await?;
        }
        Ok(())
    }

    /// Applies the actions of a step concurrently. A failure ends the step only if other requests would fail, too. Successful
    /// actions are added to `done`.
    ///
    /// # Errors
    /// See [`WriteFailure::of`].
    pub(crate) async fn apply_step(
        &self,
        step: &Step,
        done: &mut Vec<Action>,
    ) -> Result<(), WriteFailure> {
        let mut failures: Vec<WriteFailure> = Vec::new();
        for actions in step.chunks(CONCURRENT_WRITES) {
            failures.extend(self.write_all(actions, done).await);
            let concerns_all = failures.iter().any(|it| it.concerns_all_calls);
            if concerns_all {
                break;
            }
        }
        WriteFailure::of(failures).map_or(Ok(()), Err)
    }

    /// Applies all actions concurrently, whatever fails, and returns the failures. Successful actions are added to `done`.
    pub(crate) async fn apply_each(
        &self,
        actions: &[Action],
        done: &mut Vec<Action>,
    ) -> Vec<WriteFailure> {
        let mut failures = Vec::new();
        for actions in actions.chunks(CONCURRENT_WRITES) {
            failures.extend(self.write_all(actions, done).await);
        }
        failures
    }

    async fn write_all(&self, actions: &[Action], done: &mut Vec<Action>) -> Vec<WriteFailure> {
        let mut failures = Vec::new();
        let writes = actions.iter().map(|action| self.write(action));
        for (action, result) in actions.iter().zip(join_all(writes).await) {
            match result {
                Ok(()) => done.push(action.clone()),
                Err(failure) => failures.push(failure),
            }
        }
        failures
    }

    async fn write(&self, action: &Action) -> Result<(), WriteFailure> {
        let (remote, manager) = (self.remote, self.manager);
        let path = action.target().path();
        let result = match action {
            Action::Create { target, object } => {
                remote.create(&target.collection(), object, manager).await
            }
            Action::Apply { object, .. } => remote.apply(&path, object, manager, true).await,
            Action::Delete {
                uid, foreground, ..
            } => {
                let preconditions = uid.as_ref().map(|uid| json!({ "uid": uid }));
                let deleted = remote.delete(&path, preconditions.as_ref(), *foreground);
                deleted.await.map(drop)
            }
            Action::Transfer { patch, .. } | Action::RemoveFields { patch, .. } => {
                remote.json_patch(&path, patch).await
            }
        };
        (self.count)(action, result.is_ok());
        result.map_err(|error| WriteFailure {
            failure: Failure {
                target: action.target().clone(),
                message: error_chain(&error),
            },
            is_transient: error.transient(),
            concerns_all_calls: error.concerns_all_calls(),
            retry_after: error.retry_after(),
        })
    }
}
