//! Faults of KCP, the Kymas that scenarios create without a step's document, and what the demo shows: the delivery of one
//! event, and of one for a change during an outage of KCP.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use testkit::json::namespace;

use super::environment::Watching;
use super::kyma;
use crate::client::Write;
use crate::definitions::random;
use crate::gateway::NODE_PORT;
use crate::rollout::filter;
use crate::scenario::ObjectRef;

impl Watching {
    /// Injects a fault of KCP, by its name in steps, or ends it, also when there is none.
    pub(crate) async fn change_fault(&self, fault: &str, is_injected: bool) -> Result<()> {
        match fault {
            REFUSED if is_injected => self.gateway.workload.stop().await?,
            REFUSED => self.gateway.workload.start(1).await?,
            // Before they are forwarded to the Pod of the gateway.
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
            // The queue of each of them.
            "the listener is full" => {
                self.managers.iter().for_each(|it| it.block(is_injected));
            }
            "requests are delayed by 5 seconds" => self.gateway.delay(is_injected).await?,
            other => bail!("unknown fault: {other}"),
        }
        Ok(())
    }

    /// Creates a Kyma with a random name, which it returns.
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

/// The gateway is stopped.
const REFUSED: &str = "connections are refused";
