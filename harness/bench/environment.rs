//! Environment of a measurement: cores, programs, commit and machine.
//!
//! The system under test has one core, and all other processes have another one. A full run measures release binaries. A quick
//! run measures the binaries that tests use (profile `e2e`), which CI has already built.

use std::fs;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::thread::CpuSet;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::Outcome;
use crate::load::{Server, Target};
use crate::process::Program;
use crate::report::{Effort, Options};
use clusters::images::{self, Profile};
use clusters::progress;
use clusters::workspace::{self, git};
use testkit::pki::Authority;
use testkit::until::until;

pub(crate) struct Bench {
    pub(crate) effort: Effort,
    /// Core of the system under test. The load generator and all other processes have the other one.
    pub(crate) core: usize,
    pub(crate) product: PathBuf,
    /// Path of the binary of `src/serve/examples/baseline.rs`.
    baseline: PathBuf,
}

impl Bench {
    /// Creates the bench in the second process, which [`run_pinned`] starts.
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let profile = profile(options.effort);
        Ok(Self {
            effort: options.effort,
            core: options.core.context("no core for the system under test")?,
            product: images::built_binary(profile),
            baseline: images::built(profile).join("examples/baseline"),
        })
    }

    pub(crate) async fn start_baseline(&self, authority: &Authority) -> anyhow::Result<Server> {
        let program = Program::with_certificate(self, "baseline", authority, None)?;
        let (address, files) = (program.address, ["tls.crt", "tls.key"]);
        let [certificate, key] = files.map(|name| program.file(name));
        let process = program.start_as(&self.baseline, &[address.to_string(), certificate, key])?;
        let connect = || TcpStream::connect(address);
        until("the baseline server", PATIENCE, connect).await?;
        let target = Target::tls(address, authority.roots(), None)?;
        Ok(Server { process, target })
    }
}

/// Builds the measured programs, then runs this command again on the core of the load generator. For a full run it is a release
/// build, because a development build of the load generator would influence the results.
pub(crate) async fn run_pinned(options: &Options) -> anyhow::Result<Outcome> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let two = cores.next().zip(cores.next());
    let (system, load) = two.context("this process may use one core, two are needed")?;
    let profile = profile(options.effort);
    images::binary(profile).await?;
    images::build(
        profile,
        &["-p", "rt-bootstrapper-serve", "--example", "baseline"],
    )
    .await?;
    let mut harness = std::env::current_exe()?;
    if !options.effort.quick {
        harness = workspace::target().join("release/harness");
        let mut build = Command::new("cargo");
        build.current_dir(workspace::root());
        build.args("build --release --locked -p harness --bin harness".split(' '));
        progress::run("build the harness", &mut build).await?;
    }
    // Other processes, mainly the threads of an API server, have a lower priority. Programs inherit the priority. For a user
    // who may not raise a priority, `nice` prints a warning.
    let mut command = Command::new("nice");
    command
        .args(["-n", "-10", "taskset", "-c", &load.to_string()])
        .arg(harness)
        .args(std::env::args_os().skip(1))
        .arg(format!("--core={system}"))
        .stdin(Stdio::null())
        // `output` would also capture the standard error, which shows the progress.
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let running = command.spawn().context("nice and taskset are needed")?;
    let ran = running.wait_with_output().await?;
    let code = ran.status.code().and_then(|code| u8::try_from(code).ok());
    let text = String::from_utf8_lossy(&ran.stdout).trim_end().to_owned();
    Ok((text, code.map_or(ExitCode::FAILURE, ExitCode::from)))
}

fn profile(effort: Effort) -> Profile {
    effort.choose(Profile::Release, Profile::E2e)
}

/// Returns time, machine and commit of the measurement of a part, and the load average before it.
pub(crate) async fn describe(effort: Effort, section: &str) -> anyhow::Result<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).await?;
    // Results are written into docs/, so changes there are ignored.
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs"]).await?;
    let suffix = ["", " with changes"][usize::from(!changed.is_empty())];
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let (cpus, kernel) = (read("/proc/cpuinfo"), read("/proc/sys/kernel/osrelease"));
    let models = cpus.lines().filter(|it| it.starts_with("model name"));
    let models: Vec<&str> = models
        .filter_map(|it| Some(it.split_once(": ")?.1))
        .collect();
    Ok(format!(
        "`cargo harness bench {}`{} · {} · commit {commit}{suffix} · {}, {} cores, Linux {} · load average before {}",
        section.replace(' ', " --parts "),
        effort.choose("", ", quick run on profile e2e"),
        jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z"),
        models.first().unwrap_or(&"unknown CPU"),
        models.len(),
        kernel.trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or_default(),
    ))
}

const PATIENCE: Duration = Duration::from_secs(30);
