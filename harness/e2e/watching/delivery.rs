//! Faults of KCP, and the Kymas that scenarios create without a step's document.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use testkit::json::namespace;

use super::environment::Watching;
use super::kyma;
use crate::definitions::random;
use crate::gateway::NODE_PORT;
use crate::rollout::filter;
use crate::scenario::ObjectRef;
use testkit::client::Write;

impl Watching {
    /// Injects a fault of KCP, by its name in steps, or ends it. Ending a fault that is not injected is not an error.
    pub(crate) async fn change_fault(&self, fault: &str, is_injected: bool) -> Result<()> {
        match fault {
            REFUSED if is_injected => self.gateway.workload.stop().await?,
            REFUSED => self.gateway.workload.start(1).await?,
            // Packets are dropped before they are forwarded to the Pod of the gateway.
            "packets are dropped" => {
                let rule = format!("PREROUTING -p tcp --dport {NODE_PORT} -j DROP");
                filter(&self.kcp, "mangle", &rule, is_injected).await?;
            }
            "the listener is stopped" => {
                for manager in &self.managers {
                    if is_injected {
                        manager.stop().await?;
                    } else {
                        manager.restart().await?;
                    }
                }
            }
            // The queue of each listener is blocked.
            "the listener is full" => {
                self.managers.iter().for_each(|it| it.block(is_injected));
            }
            "requests are delayed by 5 seconds" => self.gateway.delay(is_injected).await?,
            other => bail!("unknown fault: {other}"),
        }
        Ok(())
    }

    /// Creates a Kyma with a random name, and returns the name.
    pub(crate) async fn create_kyma(&self, namespace: &str) -> Result<String> {
        let name = format!("kyma-{}", random());
        let mut object = kyma();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(namespace);
        self.create(&object).await?;
        Ok(name)
    }

    pub(super) async fn create_namespace(&self, name: &str) -> Result<String> {
        let name = format!("{name}-{}", random());
        let object = namespace(&name);
        self.create(&object).await?;
        Ok(name)
    }

    async fn create(&self, object: &Value) -> Result<()> {
        let client = &self.runtime.watcher.client;
        let answer = client.write(Write::Create, object).await?;
        answer
            .good_for(format!("create {}", object["kind"]))
            .map(drop)
    }

    pub(super) async fn delete_namespace(&self, name: &str) -> Result<()> {
        let namespace = ObjectRef::new("Namespace", None, name);
        crate::definitions::object::remove(&self.runtime.watcher.client, &namespace).await
    }
}

/// Fault for which the gateway is stopped.
const REFUSED: &str = "connections are refused";
