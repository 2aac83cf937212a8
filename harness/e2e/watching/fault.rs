//! Faults of KCP, as its watchers see them.

use std::str::FromStr;

use anyhow::ensure;

use super::environment::Watching;
use crate::gateway::NODE_PORT;

/// A fault of KCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The gateway is stopped.
    Refused,
    /// Packets to the port of the gateway are dropped.
    Dropped,
    /// The managers have no listener.
    Stopped,
    /// The queues of the listeners are full.
    Full,
    /// The gateway delays requests.
    Delayed,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "connections are refused" => Self::Refused,
            "packets are dropped" => Self::Dropped,
            "the listener is stopped" => Self::Stopped,
            "the listener is full" => Self::Full,
            "requests are delayed by 5 seconds" => Self::Delayed,
            other => return Err(format!("unknown fault: {other}")),
        })
    }
}

impl Watching {
    /// Injects a fault.
    pub(crate) async fn inject(&self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Refused => self.gateway.stop().await,
            Fault::Dropped => {
                self.on_kcp_node(&format!("iptables -t mangle -I {}", drop_rule()))
                    .await
            }
            Fault::Stopped => {
                for manager in &self.managers {
                    manager.stop().await?;
                }
                Ok(())
            }
            Fault::Full => {
                self.managers.iter().for_each(|it| it.block(true));
                Ok(())
            }
            Fault::Delayed => self.gateway.delay(true).await,
        }
    }

    /// Ends a fault, also when there is none.
    pub(crate) async fn end_fault(&self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Refused => self.gateway.start().await,
            Fault::Dropped => {
                let rule = drop_rule();
                let rule = format!("while iptables -t mangle -D {rule} 2>/dev/null; do :; done");
                self.on_kcp_node(&rule).await
            }
            Fault::Stopped => {
                for manager in &self.managers {
                    manager.restart().await?;
                }
                Ok(())
            }
            Fault::Full => {
                self.managers.iter().for_each(|it| it.block(false));
                Ok(())
            }
            Fault::Delayed => self.gateway.delay(false).await,
        }
    }

    async fn on_kcp_node(&self, rule: &str) -> anyhow::Result<()> {
        let output = self.kcp.exec_on_node(&["sh", "-c", rule]).await?;
        ensure!(output.code == 0, "{rule}: {output:?}");
        Ok(())
    }
}

/// Packets to the gateway are dropped before they are forwarded to its Pod.
fn drop_rule() -> String {
    format!("PREROUTING -p tcp --dport {NODE_PORT} -j DROP")
}
