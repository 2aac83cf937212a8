//! A process on a separate core, and its CPU time as recorded by the kernel.
//!
//! `taskset` pins the process and then replaces itself with the program, so the process ID is that of the program. The process
//! ends when the handle is dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::environment::Bench;
use clusters::progress::tail;
use clusters::workspace;
use testkit::metrics::Samples;
use testkit::pki::rcgen::SanType;
use testkit::pki::{Authority, Leaf};
use testkit::tls::RawClient;
use testkit::until::{holds, until, until_every};

pub(crate) struct Process {
    name: String,
    child: Child,
    account: Account,
}

impl Process {
    /// Starts a program, whose output is written to `target/harness/logs/bench-NAME.log`.
    pub(crate) fn start(
        name: &str,
        core: usize,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(workspace::logs())?;
        let spawned = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(File::create(log(name, "log"))?)
            .stderr(File::create(log(name, "err.log"))?)
            .kill_on_drop(true)
            .spawn();
        let child = spawned.with_context(|| format!("{name}: taskset is needed"))?;
        let id = child.id().context("a process without an ID")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            account: Account::of(id),
        })
    }

    /// Closes the standard input of the process, waits until it has ended, and returns its output.
    pub(crate) async fn finish(mut self) -> anyhow::Result<String> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.with_context(|| format!("{} does not end", self.name))??;
        let errors = tail(&log(&self.name, "err.log"), 5);
        ensure!(status.success(), "{}: {status}:\n{errors}", self.name);
        Ok(fs::read_to_string(log(&self.name, "log"))?)
    }

    pub(crate) fn check_running(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let errors = tail(&log(&self.name, "err.log"), 10);
            bail!("{} ended ({status}):\n{errors}", self.name);
        }
        Ok(())
    }

    /// Returns the CPU time so far, in seconds.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        self.account.cpu().with_context(|| self.name.clone())
    }

    /// Returns a field of `/proc/PID/status` such as `VmRSS`, in MiB.
    pub(crate) fn memory(&self, field: &str) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.account.process));
        let status = status.with_context(|| format!("{} has ended", self.name))?;
        let fields = status.lines().filter_map(|line| line.split_once(':'));
        let field = fields.into_iter().find(|(name, _)| *name == field);
        let kib = field.and_then(|(_, value)| value.trim().strip_suffix(" kB"));
        Ok(kib.context("no such field")?.parse::<f64>()? / 1024.0)
    }

    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| self.name.clone())
    }
}

pub(crate) struct Account {
    process: u32,
    /// Last observed CPU time in nanoseconds by thread, which includes threads that have ended.
    threads: Mutex<BTreeMap<OsString, u64>>,
}

impl Account {
    pub(crate) fn of(process: u32) -> Self {
        let threads = Mutex::default();
        Self { process, threads }
    }

    /// Returns the CPU time of all threads so far, user and system, in seconds. The scheduler's account
    /// (`/proc/PID/task/*/schedstat`) has a precision of nanoseconds, and is exact for a thread that is not running.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let mut threads = testkit::locked(&self.threads);
        for task in fs::read_dir(format!("/proc/{}/task", self.process)).context("has ended")? {
            let task = task?;
            // A thread may end between the two calls.
            if let Ok(text) = fs::read_to_string(task.path().join("schedstat")) {
                let used = text.split_whitespace().next().unwrap_or_default();
                threads.insert(task.file_name(), used.parse()?);
            }
        }
        Ok(Duration::from_nanos(threads.values().sum()).as_secs_f64())
    }
}

/// A program with its own files and ports, which stay the same after a restart, as in a Pod.
pub(crate) struct Program<'a> {
    bench: &'a Bench,
    name: &'static str,
    environment: &'static [(&'static str, &'static str)],
    files: TempDir,
    pub(crate) address: SocketAddr,
    health: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

impl<'a> Program<'a> {
    pub(crate) fn new(bench: &'a Bench, name: &'static str) -> anyhow::Result<Self> {
        Ok(Self {
            bench,
            name,
            environment: &[],
            files: tempfile::tempdir()?,
            address: free_address()?,
            health: free_address()?,
            metrics: free_address()?,
        })
    }

    /// Adds environment variables of the program's manifest.
    pub(crate) fn with_environment(
        mut self,
        environment: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.environment = environment;
        self
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    /// Prepares a program with `ca.crt` of a CA, and `tls.crt` and `tls.key` of a certificate whose common name is the
    /// program's name.
    pub(crate) fn with_certificate(
        bench: &'a Bench,
        name: &'static str,
        authority: &Authority,
        further: Option<SanType>,
    ) -> anyhow::Result<Self> {
        let program = Self::new(bench, name)?;
        let leaf = authority.leaf_with(name, |params| params.subject_alt_names.extend(further))?;
        program.write_certificate(authority.pem(), &leaf)?;
        Ok(program)
    }

    /// Writes the files of [`Program::with_certificate`], with this bundle of CAs in PEM.
    pub(crate) fn write_certificate(&self, bundle: &str, leaf: &Leaf) -> anyhow::Result<()> {
        fs::write(self.file("ca.crt"), bundle)?;
        fs::write(self.file("tls.crt"), &leaf.pem)?;
        fs::write(self.file("tls.key"), leaf.key_pem())?;
        Ok(())
    }

    pub(crate) fn start_as(&self, binary: &Path, arguments: &[String]) -> anyhow::Result<Process> {
        let core = self.bench.core;
        Process::start(self.name, core, binary, arguments, self.environment)
    }

    /// Starts the product, which is not ready yet.
    pub(crate) fn start(&self, mut arguments: Vec<String>) -> anyhow::Result<Process> {
        arguments.push(format!("--health-probe-bind-address={}", self.health));
        self.start_as(&self.bench.product, &arguments)
    }

    pub(crate) async fn ready(&self, process: &mut Process) -> anyhow::Result<()> {
        let waited = until("/readyz", PATIENCE, || get(self.health, "readyz")).await;
        process.check_running()?;
        waited.with_context(|| format!("see target/harness/logs/bench-{}.err.log", self.name))?;
        Ok(())
    }

    /// Returns the time from `begin` to the first success of `/readyz`.
    pub(crate) async fn ready_after(
        &self,
        begin: Instant,
        process: &mut Process,
    ) -> anyhow::Result<Duration> {
        let ask = async || {
            let mut client = RawClient::connect(self.health).await?;
            let response = client.ask(READYZ).await?;
            let is_ready = response.status == 200;
            anyhow::Ok(is_ready.then(|| begin.elapsed()).context(response.body)?)
        };
        let waited = until_every(LOOK, "/readyz", PATIENCE, ask).await;
        process.check_running()?;
        Ok(waited?)
    }

    /// Returns the memory (RSS) of the product in MiB, after its first requests and writes.
    pub(crate) async fn idle_memory(&self, process: &Process) -> anyhow::Result<f64> {
        let is_ready = async || get(self.health, "readyz").await.map(drop);
        holds("the program stays ready", SETTLING, is_ready).await?;
        process.memory("VmRSS")
    }

    pub(crate) async fn metrics(&self) -> anyhow::Result<Samples> {
        Ok(Samples::parse(&get(self.metrics, "metrics").await?))
    }
}

async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let request = reqwest::Client::new().get(format!("http://{address}/{path}"));
    let response = request.timeout(ANSWER_LIMIT).send().await?;
    let (status, body) = (response.status(), response.text().await?);
    ensure!(status.is_success(), "{status}: {body}");
    Ok(body)
}

/// Returns a free port of loopback below the ephemeral ports. The kernel could assign an ephemeral port to a client during a
/// restart of the process.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    let first = 20_000 + u16::try_from(std::process::id() % 8_000)?;
    let used = USED.fetch_add(1, Ordering::Relaxed);
    let mut ports = (first..first + 2_000).skip(usize::from(used));
    let free = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    Ok(free.context("no free port")?.local_addr()?)
}

fn log(name: &str, suffix: &str) -> PathBuf {
    workspace::logs().join(format!("bench-{name}.{suffix}"))
}

const READYZ: &str = "GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
/// Interval between two checks of a program that starts: short compared with its start, and long compared with the cost of a
/// check.
const LOOK: Duration = Duration::from_millis(2);
static USED: AtomicU16 = AtomicU16::new(0);
const SETTLING: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_mins(1);
/// Time limit of one request.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_to_a_program_that_does_not_answer_ends() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let asked = get(silent.local_addr().unwrap(), "metrics");
        let answer = tokio::time::timeout(PATIENCE, asked).await.unwrap();
        assert!(answer.is_err(), "{answer:?}");
    }

    #[tokio::test]
    async fn cpu_time_is_counted_below_the_tick_of_the_kernel() {
        let script = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 60";
        let arguments = ["-c", script].map(str::to_owned);
        let begin = Instant::now();
        let shell = Path::new("/bin/sh");
        let mut process = Process::start("cpu-test", 0, shell, &arguments, &[]).unwrap();
        let used = until("the loop has ended", PATIENCE, || async {
            let before = process.cpu().ok()?;
            tokio::task::yield_now().await;
            let now = process.cpu().ok()?;
            (now <= before && now > 500e-6).then_some(now)
        });
        let used = used.await.unwrap();
        assert!(used < begin.elapsed().as_secs_f64(), "{used}");
        let below = (used * 1e3).fract();
        assert!((1e-6..0.999_999).contains(&below), "milliseconds: {used}");
        process.kill().await.unwrap();
    }
}
