//! What requests to KCP have in common: the field manager, the label of created objects, and answers that are no failures.

use api::kcp::CONTROLLER_FIELD_MANAGER;
use kube::api::{PatchParams, PostParams};

/// The label of objects that the controller created; its value is [`CONTROLLER_FIELD_MANAGER`].
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// [`MANAGED_BY`] with its value.
pub(crate) fn own_label() -> (String, String) {
    (MANAGED_BY.to_owned(), CONTROLLER_FIELD_MANAGER.to_owned())
}

/// Parameters of a create or an update, as the field manager of the controller.
pub(crate) fn posting() -> PostParams {
    PostParams {
        field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters of a patch that is no apply, as the field manager of the controller.
pub(crate) fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// The result of a request where an answer of 404 or 409 is no failure.
pub(crate) trait Answer<T> {
    /// `None` if the object does not exist.
    fn unless_gone(self) -> kube::Result<Option<T>>;

    /// `None` if an object of the name exists already.
    fn unless_exists(self) -> kube::Result<Option<T>>;
}

impl<T> Answer<T> for kube::Result<T> {
    fn unless_gone(self) -> kube::Result<Option<T>> {
        match self {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
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
