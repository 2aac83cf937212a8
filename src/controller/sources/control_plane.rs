//! The identity of KCP.

use component_base::backoff::Backoff;
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use policy::sync::Salt;
use tokio::time::sleep;

/// Reads the salt with one request. The error contains the cause.
pub(crate) async fn read_salt(client: &Client) -> Result<Salt, String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_metadata("kube-system").await {
        Ok(namespace) => match namespace.metadata.uid {
            Some(uid) => Ok(Salt::new(&uid)),
            None => Err("the Namespace kube-system has no UID".to_owned()),
        },
        Err(error) => Err(error_chain(&error)),
    }
}

/// Returns the salt of every hash: the UID of the Namespace `kube-system` of KCP. Retries until the UID is read.
///
/// Needs the permission `get` on the Namespace `kube-system`.
pub async fn salt(client: &Client, readiness: &Readiness) -> Salt {
    let condition = readiness.check("control-plane-identity");
    let mut failures = 0;
    loop {
        let error = match read_salt(client).await {
            Ok(salt) => {
                condition.ready();
                return salt;
            }
            Err(error) => error,
        };
        if failures == 0 {
            tracing::warn!(error, "failed to read the identity of KCP");
        }
        condition.not_ready(error);
        sleep(Backoff::WATCH.delay(failures, fastrand::u64(..))).await;
        failures = failures.saturating_add(1);
    }
}
