//! The ways in which KCP can be away, as its watchers see it.

use anyhow::ensure;

use super::stage::Stage;
use crate::gateway;

/// How KCP can be away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// Nobody listens at the gateway's port.
    Refuses,
    /// What is sent there is lost.
    Silent,
    /// The gateway has nobody to hand events to.
    Headless,
    /// The managers' queues are full.
    Busy,
    /// The gateway hands events on after five seconds.
    Slow,
}

impl Stage {
    /// Brings KCP into trouble.
    pub(super) async fn trouble(&self, trouble: Trouble) -> anyhow::Result<()> {
        match trouble {
            Trouble::Refuses => self.gateway.stop().await,
            Trouble::Silent => self.swallow("-I").await,
            Trouble::Headless => {
                for manager in &self.managers {
                    manager.stop().await?;
                }
                Ok(())
            }
            Trouble::Busy => {
                self.managers.iter().for_each(|it| it.set_busy(true));
                Ok(())
            }
            Trouble::Slow => self.gateway.delay(true).await,
        }
    }

    /// Brings KCP out of trouble; out of none is no error.
    pub(super) async fn recover(&self, trouble: Trouble) -> anyhow::Result<()> {
        match trouble {
            Trouble::Refuses => self.gateway.resume().await,
            Trouble::Silent => self.swallow("-D").await,
            Trouble::Headless => {
                for manager in &self.managers {
                    manager.resume().await?;
                }
                Ok(())
            }
            Trouble::Busy => {
                self.managers.iter().for_each(|it| it.set_busy(false));
                Ok(())
            }
            Trouble::Slow => self.gateway.delay(false).await,
        }
    }

    /// Loses what comes to the gateway's port, before it is led to the Pod.
    async fn swallow(&self, verb: &str) -> anyhow::Result<()> {
        let port = gateway::NODE_PORT;
        let rule = format!("PREROUTING -p tcp --dport {port} -j DROP");
        let script = match verb {
            "-D" => format!("while iptables -t mangle -D {rule} 2>/dev/null; do :; done"),
            verb => format!("iptables -t mangle {verb} {rule}"),
        };
        let output = self.kcp.exec_on_node(&["sh", "-c", &script]).await?;
        ensure!(output.code == 0, "{script}: {output:?}");
        Ok(())
    }
}
