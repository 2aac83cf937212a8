//! The request that evicts a Pod, and the interpretation of its response.

use std::time::Duration;

use component_base::telemetry::error_chain;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, Preconditions};
use kube::core::response::Status;
use kube::{Api, Client};
use policy::repairs::{EvictionOutcome, PodKey};

/// Part of the message of the API server for a Pod that several PodDisruptionBudgets select.
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// Evicts the Pod with this UID. Returns the outcome, and the text of the API server if it rejected the eviction.
pub(super) async fn evict(client: &Client, key: &PodKey, uid: &str) -> (EvictionOutcome, String) {
    let preconditions = Preconditions {
        uid: Some(uid.to_owned()),
        ..Preconditions::default()
    };
    let parameters = EvictParams {
        delete_options: Some(DeleteParams::default().preconditions(preconditions)),
        ..EvictParams::default()
    };
    let api = Api::<Pod>::namespaced(client.clone(), &key.namespace);
    match api.evict(&key.name, &parameters).await {
        Ok(_) => (EvictionOutcome::Evicted, String::new()),
        Err(kube::Error::Api(status)) => (outcome(&status), status.message),
        Err(error) => (EvictionOutcome::Failed, error_chain(&error)),
    }
}

fn outcome(status: &Status) -> EvictionOutcome {
    match status.code {
        403 => EvictionOutcome::Forbidden,
        // A Pod with another UID is a conflict.
        404 | 409 => EvictionOutcome::Gone,
        429 => {
            let details = status.details.as_ref();
            let seconds = details.map_or(0, |it| u64::from(it.retry_after_seconds));
            EvictionOutcome::BudgetExhausted {
                retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
            }
        }
        500 if status.message.contains(SEVERAL_BUDGETS) => EvictionOutcome::SeveralBudgets,
        _ => EvictionOutcome::Failed,
    }
}
