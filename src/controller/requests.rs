//! Common code for requests to KCP: the field manager, the label of created objects, and error responses that are not failures.

use api::kcp::CONTROLLER_FIELD_MANAGER;
use kube::Resource;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};

/// The label of objects that the controller created; its value is [`CONTROLLER_FIELD_MANAGER`].
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Returns [`MANAGED_BY`] with its value.
pub(crate) fn own_label() -> (String, String) {
    (MANAGED_BY.to_owned(), CONTROLLER_FIELD_MANAGER.to_owned())
}

/// Returns parameters of a create or an update, with the field manager of the controller.
pub(crate) fn posting() -> PostParams {
    PostParams {
        field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Returns parameters of a patch other than an apply, with the field manager of the controller.
pub(crate) fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns parameters of the deletion of this object, not of another one that has its name meanwhile.
pub(crate) fn deleting(object: &impl Resource) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: object.meta().uid.clone(),
        resource_version: None,
    })
}

/// Converts a response with status 404 or 409 that is not a failure.
pub(crate) trait Answer<T> {
    /// Returns `None` if the object does not exist, or if the API server does not serve its kind.
    fn unless_gone(self) -> kube::Result<Option<T>>;

    /// Returns `None` if an object with the name exists already.
    fn unless_exists(self) -> kube::Result<Option<T>>;
}

impl<T> Answer<T> for kube::Result<T> {
    fn unless_gone(self) -> kube::Result<Option<T>> {
        match self {
            // Not `is_not_found`, which requires the reason: for an unknown group, the response is a text without one.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            answer => answer.map(Some),
        }
    }

    fn unless_exists(self) -> kube::Result<Option<T>> {
        match self {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
            answer => answer.map(Some),
        }
    }
}
