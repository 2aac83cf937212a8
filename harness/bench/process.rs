//! A process on a core of its own, and what the kernel says of it.
//!
//! Invariant: it ends with its handle, by its own number. Pinned by `taskset` (util-linux), and before everything else on
//! its core by `nice`; both become the program, so the number is the program's.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use clusters::progress::tail;
use clusters::workspace;

/// A started program.
pub(super) struct Process {
    name: String,
    child: Child,
    number: u32,
    talk: Option<Talk>,
}

struct Talk {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a program whose output goes to a log.
    pub(super) fn start(
        name: &str,
        core: u32,
        program: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = command(name, core, program, arguments)?;
        command
            .stdin(Stdio::null())
            .stdout(File::create(log(name))?);
        Self::spawn(name, &mut command)
    }

    /// Starts a program that is spoken with, line by line.
    pub(super) fn converse(
        name: &str,
        core: u32,
        program: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = command(name, core, program, arguments)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::spawn(name, &mut command)
    }

    fn spawn(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{name} cannot be started; nice and taskset are needed"))?;
        let number = child.id().context("a process without a number")?;
        let talk = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .map(|(input, output)| Talk {
                input,
                output: BufReader::new(output).lines(),
            });
        Ok(Self {
            name: name.to_owned(),
            child,
            number,
            talk,
        })
    }

    /// What it was started as.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Says a line.
    pub(super) async fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let talk = self.talk.as_mut().context("nobody listens")?;
        talk.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(talk.input.flush().await?)
    }

    /// The next line that it says.
    pub(super) async fn hear(&mut self) -> anyhow::Result<String> {
        let talk = self.talk.as_mut().context("nobody speaks")?;
        let heard = tokio::time::timeout(LONGEST_SILENCE, talk.output.next_line()).await;
        match heard {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => bail!(
                "{} ended; it said:\n{}",
                self.name,
                tail(&trouble(&self.name), 5)
            ),
            Ok(Err(error)) => Err(error).with_context(|| self.name.clone()),
            Err(_) => bail!("{} was silent for {LONGEST_SILENCE:?}", self.name),
        }
    }

    /// Whether it still runs; the error shows the end of its log.
    pub(super) fn is_running(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let tail = format!(
                "{}\n{}",
                tail(&log(&self.name), 10),
                tail(&trouble(&self.name), 10)
            );
            bail!("{} ended ({status}):\n{tail}", self.name);
        }
        Ok(())
    }

    /// CPU time of all its threads so far, user and system, in steps of 10 ms.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.number))
            .with_context(|| format!("{} is gone", self.name))?;
        cpu_of(&stat).context("/proc/PID/stat reads otherwise than expected")
    }

    /// A line of `/proc/PID/status` such as `VmRSS`, in KiB.
    pub(super) fn memory(&self, field: &str) -> anyhow::Result<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.number))
            .with_context(|| format!("{} is gone", self.name))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
            .with_context(|| format!("no {field} in /proc/PID/status"))
    }

    /// Ends it at once.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.kill().await
    }

    /// Ends it at once, by SIGKILL, and keeps its name.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| self.name.clone())
    }
}

fn command(name: &str, core: u32, program: &Path, arguments: &[&str]) -> anyhow::Result<Command> {
    fs::create_dir_all(workspace::logs())?;
    let mut command = Command::new("nice");
    command
        .args(["-n", PRIORITY, "taskset", "-c", &core.to_string()])
        .arg(program)
        .args(arguments)
        .stderr(File::create(trouble(name))?);
    Ok(command)
}

/// Whoever else is there, an API server with all its threads above all, takes what is left. (Who may not raise a
/// priority is told so by `nice`, and runs as it is.)
const PRIORITY: &str = "-10";

fn log(name: &str) -> std::path::PathBuf {
    workspace::logs().join(format!("bench-{name}.log"))
}

fn trouble(name: &str) -> std::path::PathBuf {
    workspace::logs().join(format!("bench-{name}.err.log"))
}

/// Fields 14 and 15 of `/proc/PID/stat`; the program's name before them may itself contain blanks and brackets.
fn cpu_of(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

/// `USER_HZ` is 100 on every architecture that we build for.
const TICK: Duration = Duration::from_millis(10);
/// No measurement takes so long.
const LONGEST_SILENCE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_strange_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 3 4 20 0 5 0 1 2 3";
        assert_eq!(cpu_of(stat), Some(Duration::from_millis(1750)));
        assert_eq!(cpu_of("42"), None);
    }
}
