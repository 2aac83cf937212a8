//! The machine and the moment: which cores are ours, and what a reader of the figures must know.

use std::fmt;
use std::fs;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use clusters::workspace;

/// One core for what is measured, another one for what measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cores {
    pub(super) subject: u32,
    pub(super) generator: u32,
}

impl Cores {
    /// The first two that this process may use.
    pub(super) fn ours() -> anyhow::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .context("the kernel does not say which cores may be used")?;
        let cores = parse_list(list.trim()).context("an unreadable list of cores")?;
        ensure!(cores.len() >= 2, "two cores are needed, and {list} is one");
        Ok(Self {
            subject: cores[0],
            generator: cores[1],
        })
    }
}

/// `0-1,4` → 0, 1, 4.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

/// Where and when figures were taken.
#[derive(Debug)]
pub(super) struct Circumstances {
    date: String,
    commit: String,
    machine: String,
    load: String,
}

impl Circumstances {
    /// Of now; the load is that from before the bench.
    pub(super) async fn now() -> anyhow::Result<Self> {
        let commit = git(&["rev-parse", "--short=12", "HEAD"]).await?;
        // The figures themselves are written into docs/.
        let changed = git(&["status", "--porcelain", "--", ".", ":!docs"]).await?;
        let suffix = if changed.is_empty() {
            ""
        } else {
            " with changes"
        };
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let model = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or_else(|| "unknown CPU".to_owned(), |(_, model)| model.to_owned());
        // All of the machine's, also where this process may use one of them alone.
        let processors = read("/proc/cpuinfo");
        let processors = processors.lines().filter(|it| it.starts_with("processor"));
        let cores = processors.count().max(1);
        Ok(Self {
            date: jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z").to_string(),
            commit: format!("{commit}{suffix}"),
            machine: format!(
                "{model}, {cores} cores, Linux {}",
                read("/proc/sys/kernel/osrelease").trim()
            ),
            load: read("/proc/loadavg").split(' ').take(1).collect::<String>(),
        })
    }
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            date,
            commit,
            machine,
            load,
        } = self;
        write!(
            f,
            "{date}, commit {commit}, {machine}, load average before {load}"
        )
    }
}

async fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(workspace::root())
        .output()
        .await
        .context("git cannot be run")?;
    ensure!(output.status.success(), "git {arguments:?} failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-1"), Some(vec![0, 1]));
        assert_eq!(parse_list("3,5-7"), Some(vec![3, 5, 6, 7]));
        assert_eq!(parse_list("2"), Some(vec![2]));
        assert_eq!(parse_list(""), None);
    }
}
