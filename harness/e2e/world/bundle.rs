//! The ClusterTrustBundle of the landscape.
//!
//! Invariant: its name is the one of the example in src/policy/admission/tests/example, so that one configuration serves both.

use serde_json::{Value, json};

pub(crate) fn object(pem: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": { "name": NAME },
        "spec": { "signerName": SIGNER, "trustBundle": pem },
    })
}

/// Its path in the API.
pub(crate) const PATH: &str =
    "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/rt-bootstrapper-k3d.test:ctb:1";
/// Its name.
pub(crate) const NAME: &str = "rt-bootstrapper-k3d.test:ctb:1";
/// Whose it is.
pub(crate) const SIGNER: &str = "rt-bootstrapper-k3d.test/ctb";
/// Its file in the container.
pub(crate) const FILE: &str = "kube-apiserver-serving.pem";
