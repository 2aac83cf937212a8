//! What the demo shows: the delivery of one event, and of one for a change during an outage of KCP. And the Kymas that
//! scenarios create without a step's document.

use std::time::{Duration, Instant};

use super::RUNTIME;
use super::environment::Watching;
use super::fault::Fault;
use super::objects::{LIFECYCLE, kyma};
use crate::client::Write;
use crate::definitions::PATIENCE;
use crate::scenario::ObjectRef;
use serde_json::json;
use testkit::until::until;

/// Deliveries of the events for two Kymas on a runtime to a manager on KCP.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Runtime in the client certificate.
    pub runtime: String,
    /// The manager.
    pub manager: &'static str,
    /// Duration of the write.
    pub write: Duration,
    /// Time from the start of the write until the manager had the event.
    pub received: Duration,
    /// Duration of a write while KCP was unreachable.
    pub write_in_outage: Duration,
    /// Time from the end of the outage until the manager had that event.
    pub received_after_outage: Duration,
}

impl Watching {
    /// Creates two Kymas, the second one while KCP refuses connections.
    ///
    /// # Errors
    /// When a write is denied, or an event does not arrive.
    pub async fn deliver(&self) -> anyhow::Result<Delivery> {
        let namespace = self.create_namespace("demo").await?;
        let begin = Instant::now();
        let kyma = self.create_kyma(&namespace).await?;
        let write = begin.elapsed();
        self.is_received(&namespace, &kyma).await?;
        let received = begin.elapsed();

        self.inject(Fault::Refused).await?;
        let begin = Instant::now();
        let kyma = self.create_kyma(&namespace).await;
        let write_in_outage = begin.elapsed();
        let end = Instant::now();
        self.end_fault(Fault::Refused).await?;
        self.is_received(&namespace, &kyma?).await?;
        let received_after_outage = end.elapsed();
        self.delete_namespace(&namespace).await?;
        Ok(Delivery {
            runtime: RUNTIME.to_owned(),
            manager: LIFECYCLE,
            write,
            received,
            write_in_outage,
            received_after_outage,
        })
    }

    async fn is_received(&self, namespace: &str, kyma: &str) -> anyhow::Result<()> {
        let manager = self.manager(LIFECYCLE)?;
        until("the manager has the event", PATIENCE, || async {
            manager.received_in(namespace).contains(kyma)
        })
        .await?;
        Ok(())
    }

    /// Creates a Kyma with a random name, which it returns.
    pub(crate) async fn create_kyma(&self, namespace: &str) -> anyhow::Result<String> {
        let name = format!("kyma-{:016x}", fastrand::u64(..));
        let mut object = kyma();
        object["metadata"]["name"] = json!(name);
        let client = &self.runtime.client;
        let answer = client
            .write(Write::Create, Some(namespace), &object)
            .await?;
        answer.good_for("create a Kyma")?;
        Ok(name)
    }

    /// Creates a Namespace with a random suffix.
    pub(super) async fn create_namespace(&self, name: &str) -> anyhow::Result<String> {
        let name = format!("{name}-{:016x}", fastrand::u64(..));
        let object = json!({ "kind": "Namespace", "metadata": { "name": name } });
        let answer = self
            .runtime
            .client
            .write(Write::Create, None, &object)
            .await?;
        answer.good_for("create a Namespace")?;
        Ok(name)
    }

    pub(super) async fn delete_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespace = ObjectRef::new("Namespace", None, name);
        crate::definitions::object::remove(&self.runtime.client, &namespace).await
    }
}
