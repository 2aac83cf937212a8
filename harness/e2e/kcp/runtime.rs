//! A Runtime of the control plane, as KEB and KIM would write it.

use api::runtimes::{
    INFRASTRUCTURE_MANAGER, KCP_NAMESPACE, KUBECONFIG_KEY, MANAGED_BY, MODE, RUNTIME_GROUP,
    RUNTIME_ID, RUNTIME_KIND, RUNTIME_VERSION, WAVE, kubeconfig_secret,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::world::random;

/// One Runtime.
#[derive(Debug, Clone)]
pub(super) struct Runtime {
    /// Its name; that of its RuntimeBootstrapper is the same.
    pub(super) name: String,
    /// The runtime id; empty for none.
    pub(super) id: String,
    /// Its cluster, if it has one.
    pub(super) skr: Option<usize>,
}

impl Runtime {
    /// One that nobody has seen before.
    pub(super) fn fresh(skr: Option<usize>) -> Self {
        let chance = random();
        Self {
            name: format!("runtime-{chance}"),
            id: format!("00000000-0000-4000-8000-0000000{chance}"),
            skr,
        }
    }

    /// The one that keeps a cluster in direct mode.
    pub(super) fn resident(skr: usize) -> Self {
        Self {
            name: format!("resident-{skr}"),
            id: format!("10000000-0000-4000-8000-{skr:012}"),
            skr: Some(skr),
        }
    }

    /// The object, in a mode or in none.
    pub(super) fn object(&self, mode: Option<&str>, wave: Option<u32>) -> Value {
        let mut labels = json!({ "kyma-project.io/provider": "AWS" });
        if !self.id.is_empty() {
            labels[RUNTIME_ID] = json!(self.id);
        }
        if let Some(mode) = mode {
            labels[MODE] = json!(mode);
        }
        if let Some(wave) = wave {
            labels[WAVE] = json!(wave.to_string());
        }
        json!({
            "apiVersion": format!("{RUNTIME_GROUP}/{RUNTIME_VERSION}"), "kind": RUNTIME_KIND,
            "metadata": { "name": self.name, "namespace": KCP_NAMESPACE, "labels": labels },
            "spec": { "shoot": { "name": self.name, "region": "eu-central-1" } },
        })
    }

    /// The Secret of a kubeconfig, with the name, key and labels that KIM writes.
    pub(super) fn kubeconfig_object(&self, text: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": kubeconfig_secret(&self.id), "namespace": KCP_NAMESPACE,
                "labels": { (RUNTIME_ID): self.id, (MANAGED_BY): INFRASTRUCTURE_MANAGER },
            },
            "data": { (KUBECONFIG_KEY): BASE64.encode(text) },
        })
    }
}
