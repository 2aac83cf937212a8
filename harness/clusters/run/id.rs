//! The ID of a run, and whether the run has ended.
//!
//! Several machines, or several containers of one CI machine, can share one Docker socket. Processes of another PID namespace
//! are not visible. A run of another namespace is therefore treated as ended 24 hours after its start.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::RUN;
use super::kept::short_hash;

/// Identifies a run by its PID namespace, its start, its process, and its number in the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunId {
    /// Digest of the kernel's boot ID and the PID namespace, because process IDs are unique only within one of them.
    namespace: String,
    /// Unix time in seconds.
    began: u64,
    process: u32,
    /// Start time of the process in clock ticks, because process IDs are reused.
    started: String,
    number: u32,
}

impl RunId {
    /// Returns the ID of a new run of this process.
    pub(super) fn next() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let process = std::process::id();
        Self {
            namespace: pid_namespace(),
            began: unix_seconds(),
            process,
            started: start_time(process).unwrap_or_default(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        Some(Self {
            namespace: parts.next()?.to_owned(),
            began: parts.next()?.parse().ok()?,
            process: parts.next()?.parse().ok()?,
            started: parts.next()?.to_owned(),
            number: parts.next()?.parse().ok()?,
        })
    }

    /// Returns the name of the run's network, which is also the prefix of its containers' names.
    pub(super) fn prefix(&self) -> String {
        format!("kyma-{self}")
    }

    pub(super) fn labels(&self) -> HashMap<String, String> {
        HashMap::from([(RUN.to_owned(), self.to_string())])
    }

    /// Whether the run has ended: its process does not exist, or the process is not visible and the run is older than
    /// [`EXPIRY`].
    pub(super) fn is_gone(&self) -> bool {
        if self.namespace == pid_namespace() {
            return start_time(self.process).is_none_or(|started| started != self.started);
        }
        Duration::from_secs(unix_seconds().saturating_sub(self.began)) > EXPIRY
    }

    /// Whether this process created the run.
    pub(super) fn is_own(&self) -> bool {
        let is_this_process = self.process == std::process::id();
        is_this_process && self.namespace == pid_namespace() && !self.is_gone()
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (namespace, started) = (&self.namespace, &self.started);
        let (began, process, number) = (self.began, self.process, self.number);
        write!(f, "{namespace}-{began}-{process}-{started}-{number}")
    }
}

/// Returns a hash of the boot ID, which identifies machine and boot, and the namespace's inode, which differs between
/// containers.
fn pid_namespace() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    short_hash(&format!("{} {}", boot.trim(), namespace.display()))
}

fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Age at which a run of another PID namespace is treated as ended. No run takes a day.
const EXPIRY: Duration = Duration::from_hours(24);

/// Returns field 22 of `/proc/PID/stat`; none for a process that has ended, even if it is not reaped yet.
fn start_time(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, an earlier field, may contain spaces and brackets.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| started.to_owned())
}

/// Returns a run of this PID namespace whose process ID was reused, and the same run of another namespace.
#[cfg(test)]
pub(super) fn dead_and_foreign() -> [RunId; 2] {
    let dead = RunId {
        started: "1".to_owned(),
        ..RunId::next()
    };
    let foreign = RunId {
        namespace: "00000000".to_owned(),
        ..dead.clone()
    };
    [dead, foreign]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_gone_with_its_process_and_in_another_pid_namespace_after_a_day() {
        let own = RunId::next();
        assert!(!own.is_gone() && own.is_own());
        assert_eq!(RunId::parse(&own.to_string()), Some(own.clone()));
        assert_ne!(RunId::next(), own);
        let [dead, foreign] = dead_and_foreign();
        assert!(
            dead.is_gone() && !dead.is_own(),
            "the number alone is not the process"
        );
        assert!(
            !foreign.is_gone() && !foreign.is_own(),
            "its process cannot be seen"
        );
        let old = RunId {
            began: foreign.began - EXPIRY.as_secs() - 1,
            ..foreign
        };
        assert!(old.is_gone());
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_is_gone() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id();
        assert!(start_time(id).is_some());
        child.kill().unwrap();
        // The process is dead but not reaped, so the kernel keeps its entry.
        while start_time(id).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
