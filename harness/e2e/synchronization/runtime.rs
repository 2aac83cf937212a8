//! A Runtime on KCP, as KEB and KIM write it.

use api::runtimes::{
    INFRASTRUCTURE_MANAGER, KCP_NAMESPACE, KUBECONFIG_KEY, MANAGED_BY, MODE, RUNTIME_GROUP,
    RUNTIME_ID, RUNTIME_KIND, RUNTIME_VERSION, WAVE, kubeconfig_secret,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::scenario::ObjectRef;

/// One Runtime.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    /// Its name; that of its RuntimeBootstrapper is the same.
    pub(crate) name: String,
    /// The runtime ID; empty if it has none.
    pub(crate) id: String,
    /// The number of its cluster, if it has one.
    pub(crate) cluster: Option<usize>,
}

impl Runtime {
    /// A Runtime with a name that begins so and did not exist before.
    pub(crate) fn fresh(alias: &str, cluster: Option<usize>) -> Self {
        let chance = fastrand::u64(..) & 0xffff_ffff_ffff;
        Self {
            name: format!("{alias}-{chance:012x}"),
            id: format!("00000000-0000-4000-8000-{chance:012x}"),
            cluster,
        }
    }

    /// The Runtime that keeps a cluster in mode direct through all scenarios.
    pub(crate) fn permanent(cluster: usize) -> Self {
        Self {
            name: format!("permanent-{cluster}"),
            id: format!("10000000-0000-4000-8000-{cluster:012}"),
            cluster: Some(cluster),
        }
    }

    /// How steps name the object, by its name on the cluster.
    pub(crate) fn reference(&self) -> ObjectRef {
        ObjectRef::new(RUNTIME_KIND, Some(KCP_NAMESPACE), &self.name)
    }

    /// The object, with the labels of mode and wave if they are given.
    pub(crate) fn object(&self, mode: Option<&str>, wave: Option<u32>) -> Value {
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

    /// The Secret with a kubeconfig, with the name, key and labels that KIM writes.
    pub(crate) fn kubeconfig_object(&self, text: &str) -> Value {
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
