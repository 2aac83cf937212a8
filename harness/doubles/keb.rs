//! Double of the Kyma Environment Broker; `keb/README.md` describes the scope of the double.
#![expect(
    clippy::disallowed_methods,
    reason = "the broker looks at intervals, which are part of its behavior"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use api::bootstrapper;
use api::kcp::{
    KCP_NAMESPACE, MANAGED_BY, MODE_DIRECT, MODE_LABEL, RUNTIME_GROUP, RUNTIME_ID, RUNTIME_KIND,
    RUNTIME_VERSION,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::json::condition;
use testkit::locked;
use tokio::time::{Instant, sleep};

use crate::objects::reference;
use crate::{KYMA_GROUP, KYMA_NAME, KYMA_VERSION, Objects, SKR_DOMAIN};

/// Intervals and limits of waiting; the defaults are those of the public broker.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// Interval between two reads of a Runtime that is being provisioned.
    pub provisioning: Duration,
    /// Interval between two reads of a Runtime that is being deleted.
    pub deletion: Duration,
    /// Time limit of both. A Runtime that is not Ready then is deleted; a Runtime that still exists after a deletion is an
    /// error.
    pub limit: Duration,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            provisioning: Duration::from_secs(10),
            deletion: Duration::from_secs(20),
            limit: Duration::from_hours(1),
        }
    }
}

/// One service instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// ID of the runtime, which is also the name of the Runtime and of the Kyma.
    pub runtime_id: String,
    /// Name of the Gardener cluster.
    pub shoot: String,
    /// Value of the label that chooses how the controller synchronizes the runtime.
    pub mode: String,
    /// Modules of the Kyma.
    pub modules: Vec<String>,
}

/// KEB of one control plane.
#[derive(Clone)]
pub struct Keb {
    kcp: Objects,
    waiting: Waiting,
    /// Time at which the broker found a Runtime Ready, by runtime ID.
    found_ready: Arc<Mutex<BTreeMap<String, Timestamp>>>,
}

impl Keb {
    /// Returns a broker of a control plane.
    pub fn new(kcp: Objects, waiting: Waiting) -> Self {
        Self {
            kcp,
            waiting,
            found_ready: Arc::default(),
        }
    }

    /// Returns the time at which the broker found the Runtime of an instance Ready.
    pub fn found_ready(&self, instance: &Instance) -> Option<Timestamp> {
        locked(&self.found_ready).get(&instance.runtime_id).copied()
    }

    /// Creates the Runtime, waits until it is Ready, and creates the Kyma. It does not wait for the Kyma. If the Runtime is not
    /// Ready within the limit, the broker deletes the Runtime.
    pub async fn provision(&self, instance: &Instance) -> Result<()> {
        if self.kcp.find(&instance.runtime()).await?.is_null() {
            self.kcp.create(&instance.runtime()).await?;
        }
        let begin = Instant::now();
        while !self.is_ready(instance).await? {
            if begin.elapsed() > self.waiting.limit {
                let runtime = self.kcp.find(&instance.runtime()).await?;
                self.kcp.delete(&instance.runtime()).await?;
                bail!("the Runtime was not Ready in time: {}", runtime["status"]);
            }
            sleep(self.waiting.provisioning).await;
        }
        let id = instance.runtime_id.clone();
        locked(&self.found_ready).insert(id, Timestamp::now());
        self.apply_kyma(&instance.kyma()).await
    }

    /// Creates the Kyma. If the Kyma exists, only its labels and annotations are updated.
    async fn apply_kyma(&self, kyma: &Value) -> Result<()> {
        if self.kcp.find(kyma).await?.is_null() {
            return self.kcp.create(kyma).await;
        }
        let (labels, annotations) = (
            &kyma["metadata"]["labels"],
            &kyma["metadata"]["annotations"],
        );
        let change = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        self.kcp.merge(kyma, &change).await
    }

    /// Deletes the Kyma and immediately the Runtime, and waits until the Runtime does not exist.
    pub async fn deprovision(&self, instance: &Instance) -> Result<()> {
        self.kcp.delete(&instance.kyma()).await?;
        self.kcp.delete(&instance.runtime()).await?;
        let begin = Instant::now();
        loop {
            let runtime = self.kcp.find(&instance.runtime()).await?;
            if runtime.is_null() {
                return Ok(());
            }
            let is_late = begin.elapsed() > self.waiting.limit;
            ensure!(!is_late, "the Runtime still exists: {}", runtime["status"]);
            sleep(self.waiting.deletion).await;
        }
    }

    /// Whether the broker may create the Kyma: the state of the Runtime is Ready, which is the public rule, and in a landscape
    /// whose KIM does not install the webhook, so is the RuntimeBootstrapper. A Runtime in state `Failed` is treated as not
    /// Ready yet, as in the public broker.
    pub async fn is_ready(&self, instance: &Instance) -> Result<bool> {
        let runtime = self.kcp.find(&instance.runtime()).await?;
        if runtime["status"]["state"] != "Ready" {
            return Ok(false);
        }
        if instance.mode != MODE_DIRECT {
            return Ok(true);
        }
        let found = self.kcp.find(&instance.bootstrapper()).await?;
        Ok(condition(&found, "Ready")["status"] == "True")
    }
}

impl Instance {
    /// Returns the annotation `skr-domain` of the Kyma.
    pub fn domain(&self) -> String {
        format!("{}.skr.landscape.test", self.shoot)
    }

    fn bootstrapper(&self) -> Value {
        let version = format!("{}/{}", bootstrapper::GROUP, bootstrapper::VERSION);
        let kind = bootstrapper::KIND;
        reference(&version, kind, KCP_NAMESPACE, &self.runtime_id)
    }

    fn labels(&self) -> Value {
        let derived = |digit: &str| format!("{digit}{}", &self.runtime_id[1..]);
        json!({
            (RUNTIME_ID): self.runtime_id,
            "kyma-project.io/instance-id": derived("1"),
            "kyma-project.io/broker-plan-id": "361c511f-f939-4621-b228-d0fb79a1fe15",
            "kyma-project.io/broker-plan-name": "aws",
            "kyma-project.io/global-account-id": derived("2"),
            "kyma-project.io/subaccount-id": derived("3"),
            "kyma-project.io/region": "eu-central-1",
            "kyma-project.io/platform-region": "cf-eu10",
            "kyma-project.io/shoot-name": self.shoot,
            "kyma-project.io/provider": "AWS",
            (KYMA_NAME): self.runtime_id,
        })
    }

    /// Returns the Runtime as the broker creates it.
    pub fn runtime(&self) -> Value {
        let mut labels = self.labels();
        labels[MODE_LABEL] = json!(self.mode);
        json!({
            "apiVersion": format!("{RUNTIME_GROUP}/{RUNTIME_VERSION}"), "kind": RUNTIME_KIND,
            "metadata": {
                "name": self.runtime_id, "namespace": KCP_NAMESPACE, "labels": labels,
            },
            "spec": {
                "shoot": {
                    "name": self.shoot, "purpose": "production", "platformRegion": "cf-eu10",
                    "region": "eu-central-1", "secretBindingName": "aws",
                    "networking": {
                        "nodes": "10.250.0.0/16", "pods": "10.96.0.0/13", "services": "10.104.0.0/13",
                    },
                    "provider": {
                        "type": "aws",
                        "workers": [{ "name": "cpu-worker-0", "machine": { "type": "m6i.large" } }],
                    },
                },
                "security": {
                    "administrators": ["owner@landscape.test"],
                    "networking": { "filter": { "egress": { "enabled": false } } },
                },
            },
        })
    }

    /// Returns the Kyma as the broker creates it.
    pub fn kyma(&self) -> Value {
        let mut labels = self.labels();
        labels[MANAGED_BY] = json!("lifecycle-manager");
        let modules = self.modules.iter().map(|name| json!({ "name": name }));
        json!({
            "apiVersion": format!("{KYMA_GROUP}/{KYMA_VERSION}"), "kind": "Kyma",
            "metadata": {
                "name": self.runtime_id, "namespace": KCP_NAMESPACE, "labels": labels,
                "annotations": { (SKR_DOMAIN): self.domain() },
            },
            "spec": { "channel": "regular", "modules": modules.collect::<Value>() },
        })
    }
}

#[cfg(test)]
mod tests;
