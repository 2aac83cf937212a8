//! The product's watcher as a process of its own: how it is called, what it is asked, how it ends.
//!
//! Invariant: its command line is written in one place, [`Program::flags`]; ports, certificates and spool stay over its
//! lives, as they do in a Pod.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::authority::{HOST, client};
use super::kcp::MANAGER;
use super::reviews::Door;
use super::stage::Stage;
use crate::process::Process;
use testkit::until::{holds, until};

/// What is started, again and again.
pub(super) struct Program {
    /// Of the runtime: in its certificate, and in the name of its log.
    name: String,
    binary: PathBuf,
    core: u32,
    folder: TempDir,
    kcp: SocketAddr,
    /// Where reviews are taken.
    pub(super) door: Door,
    metrics: SocketAddr,
    health: SocketAddr,
}

/// A watcher that runs.
pub(super) struct Watcher {
    name: String,
    pub(super) process: Process,
    health: SocketAddr,
}

impl Program {
    /// With certificates of its own and an empty spool.
    pub(super) fn new(stage: &Stage<'_>, name: &str, kcp: SocketAddr) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(SPOOL))?;
        let authority = &stage.authority;
        let leaf = authority.leaf(name)?;
        for (file, content) in [
            (CA, &authority.pem),
            (CERTIFICATE, &leaf.pem),
            (KEY, &leaf.key_pem),
        ] {
            std::fs::write(folder.path().join(file), content)?;
        }
        Ok(Self {
            name: name.to_owned(),
            binary: stage.product.clone(),
            core: stage.cores.subject,
            folder,
            kcp,
            door: Door {
                address: free_address()?,
                tls: client(&authority.pem, None)?,
            },
            metrics: free_address()?,
            health: free_address()?,
        })
    }

    /// Starts it; it is not ready yet.
    pub(super) fn start(&self, further: &[&str]) -> anyhow::Result<Watcher> {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let flags = [&flags[..], further].concat();
        let process = Process::start(&self.name, self.core, &self.binary, &flags)?;
        Ok(Watcher {
            name: self.name.clone(),
            process,
            health: self.health,
        })
    }

    fn flags(&self) -> Vec<String> {
        let file = |name: &str| self.file(name).display().to_string();
        vec![
            "watcher".to_owned(),
            format!("--ca-cert={}", file(CA)),
            format!("--tls-cert={}", file(CERTIFICATE)),
            format!("--tls-key={}", file(KEY)),
            format!("--kcp-addr={}", self.kcp),
            "--kcp-contract=v2".to_owned(),
            format!("--managers={MANAGER}"),
            format!("--spool-dir={}", file(SPOOL)),
            format!("--webhook-port={}", self.door.address.port()),
            format!("--metrics-port={}", self.metrics.port()),
            format!("--health-probe-bind-address={}", self.health),
        ]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// From now on it finds nothing where its spool should be.
    pub(super) fn forbid_spool(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_dir_all(self.file(SPOOL))?)
    }

    /// Bytes on the disk.
    pub(super) fn spool_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(self.file(SPOOL))? {
            // A segment may go between the two calls.
            bytes += entry?.metadata().map_or(0, |it| it.len());
        }
        Ok(bytes)
    }
}

impl Watcher {
    /// Waits until it says that it is ready.
    pub(super) async fn ready(&mut self) -> anyhow::Result<()> {
        let waited = until("the watcher is ready", PATIENCE, || self.asked()).await;
        self.process.is_running()?;
        waited.with_context(|| format!("see target/harness/logs/bench-{}.log", self.name))
    }

    /// Leaves it alone until its start is over, and takes its resident KiB.
    pub(super) async fn idle(&mut self) -> anyhow::Result<u32> {
        self.ready().await?;
        holds("the watcher stays ready", SETTLING, || self.asked()).await?;
        self.memory()
    }

    async fn asked(&self) -> anyhow::Result<()> {
        let answer = reqwest::get(format!("http://{}/readyz", self.health)).await?;
        ensure!(answer.status().is_success(), "{}", answer.status());
        Ok(())
    }

    /// Resident KiB.
    pub(super) fn memory(&self) -> anyhow::Result<u32> {
        self.process.memory("VmRSS")
    }

    /// Whether it still runs; the error shows the end of its log.
    pub(super) fn is_running(&mut self) -> anyhow::Result<()> {
        self.process.is_running()
    }

    /// SIGKILL: it has no time for anything.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await
    }
}

/// One that nobody uses at the moment, below the ports that the kernel gives to clients, one of which might take it
/// between two lives.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    let first = 20_000 + u16::try_from(std::process::id() % 8_000)?;
    let taken = TAKEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut ports = (first..first + 2_000).skip(usize::from(taken));
    let free = ports.find_map(|port| TcpListener::bind((HOST, port)).ok());
    Ok(free.context("no port is free")?.local_addr()?)
}

static TAKEN: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);

const CA: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const SPOOL: &str = "spool";
const PATIENCE: Duration = Duration::from_mins(1);
const SETTLING: Duration = Duration::from_secs(3);
