//! Faults of KCP, the Kymas that scenarios create without a step's document, and what the demo shows: the delivery of one
//! event, and of one for a change during an outage of KCP.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::environment::Watching;
use super::{LIFECYCLE, RUNTIME, kyma};
use crate::client::Write;
use crate::definitions::{eventually, random};
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

    /// Creates two Kymas, the second one while KCP refuses connections. Says what happened and how long it took.
    pub async fn deliver(&self) -> Result<[String; 4]> {
        let namespace = self.create_namespace("demo").await?;
        let begin = Instant::now();
        let kyma = self.create_kyma(&namespace).await?;
        let write = begin.elapsed();
        self.is_received(&namespace, &kyma).await?;
        let received = begin.elapsed();

        self.change_fault(REFUSED, true).await?;
        let begin = Instant::now();
        let kyma = self.create_kyma(&namespace).await;
        let write_in_outage = begin.elapsed();
        let end = Instant::now();
        self.change_fault(REFUSED, false).await?;
        self.is_received(&namespace, &kyma?).await?;
        let after = end.elapsed().as_secs_f64();
        self.delete_namespace(&namespace).await?;
        let [write, received, second] = [write, received, write_in_outage]
            .map(|span| format!("{:.0} ms", span.as_secs_f64() * 1_000.0));
        Ok([
            format!("a Kyma is created on runtime {RUNTIME}; the write took {write}"),
            format!("within {received} {LIFECYCLE} on KCP received the event"),
            format!("KCP is unreachable, another Kyma is created; the write took {second}"),
            format!(
                "{after:.1} s after KCP is reachable again {LIFECYCLE} received that event, too"
            ),
        ])
    }

    async fn is_received(&self, namespace: &str, kyma: &str) -> Result<()> {
        let manager = self.manager(LIFECYCLE)?;
        eventually("the manager has the event", async || {
            ensure!(manager.received_in(namespace).contains_key(kyma), "not yet");
            Ok(())
        })
        .await
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
        let object = json!({ "kind": "Namespace", "metadata": { "name": name } });
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
