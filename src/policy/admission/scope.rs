//! The Pods that the API server never sends to the webhook. A decision without the API server needs them to explain
//! why a Pod is not changed.
//!
//! In a cluster, the selector and the match conditions of `deploy/webhook/mutatingwebhookconfiguration.yaml` exclude
//! these Pods.

use api::names::{EXCLUDED_NAMESPACE, OWN_LABEL};

use super::Reason;

/// Why a Pod is never sent; `None` if it is. The label is the value that the Pod has for the key of [`OWN_LABEL`]; the Pods of the
/// webhook are in `product_namespace`.
#[must_use]
pub fn exclusion<'a>(
    namespace: &'a str,
    product_namespace: &str,
    label: Option<&str>,
) -> Option<Reason<'a>> {
    if namespace == EXCLUDED_NAMESPACE {
        Some(Reason::NamespaceExcluded { namespace })
    } else if namespace == product_namespace && label == Some(OWN_LABEL.1) {
        Some(Reason::OwnPod)
    } else {
        None
    }
}
