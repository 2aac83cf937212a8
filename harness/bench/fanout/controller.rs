//! The product's controller as a process of its own: how it is called, how it ends, what it needs.
//!
//! Invariant: its command line is written in one place, [`flags`].

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::process::Process;
use clusters::control_plane;
use testkit::until::until;

/// What is started, again and again.
pub(super) struct Program {
    pub(super) binary: PathBuf,
    pub(super) core: u32,
    /// Of the control plane.
    pub(super) kubeconfig: PathBuf,
}

/// A controller that runs.
pub(super) struct Controller {
    process: Process,
    health: SocketAddr,
    metrics: SocketAddr,
}

impl Program {
    /// Starts it; it is not ready yet.
    pub(super) fn start(&self) -> anyhow::Result<Controller> {
        let health = free_address()?;
        let metrics = free_address()?;
        let flags = flags(&self.kubeconfig, health, metrics);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let process = Process::start("controller", self.core, &self.binary, &flags)?;
        Ok(Controller {
            process,
            health,
            metrics,
        })
    }
}

/// The command line.
fn flags(kubeconfig: &Path, health: SocketAddr, metrics: SocketAddr) -> Vec<String> {
    let mut flags = control_plane::controller_flags(kubeconfig, "bench");
    flags.push(format!("--health-probe-bind-address={health}"));
    flags.push(format!("--metrics-bind-address={metrics}"));
    flags
}

impl Controller {
    /// Waits until it says that it is ready.
    pub(super) async fn ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://{}/readyz", self.health);
        let waited = until("the controller is ready", PATIENCE, || async {
            let status = reqwest::get(&url).await?.status();
            ensure!(status.is_success(), "{status}");
            anyhow::Ok(())
        })
        .await;
        self.process.is_running()?;
        waited.context("see target/harness/logs/bench-controller.err.log")
    }

    /// Statuses that it wrote on the control plane so far.
    pub(super) async fn statuses(&self) -> anyhow::Result<u64> {
        let page = reqwest::get(format!("http://{}/metrics", self.metrics)).await?;
        let page = page.text().await?;
        let lines = page.lines().filter(|line| line.starts_with(STATUSES));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(counts.sum())
    }

    /// Whether it still runs; the error shows the end of its log.
    pub(super) fn is_running(&mut self) -> anyhow::Result<()> {
        self.process.is_running()
    }

    /// CPU time so far.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        self.process.cpu()
    }

    /// Resident KiB: now, and the most so far.
    pub(super) fn memory(&self) -> anyhow::Result<(u32, u32)> {
        Ok((self.process.memory("VmRSS")?, self.process.memory("VmHWM")?))
    }

    /// SIGKILL: it has no time for anything.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await
    }
}

/// One that nobody uses at the moment.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

const STATUSES: &str = "rt_bootstrapper_controller_status_updates_total";
const PATIENCE: Duration = Duration::from_mins(1);
