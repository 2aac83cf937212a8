//! How an outbox is kept.

use std::path::PathBuf;
use std::time::Duration;

use api::event::PathSegment;

/// How an outbox is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the spool's files are. It must exist and be writable, or everything stays in memory.
    pub folder: PathBuf,
    /// Most bytes of the spool's segments together, the time of a compaction included; at least 256 KiB. A quarter of it
    /// is for what is to be told at one time. What is kept aside for a newer release is not counted.
    pub max_bytes: u64,
    /// When records are forced to the disk.
    pub fsync: FsyncPolicy,
    /// KCP is told a second time so long after an object's last change, because admission precedes storage and KCP may
    /// have looked too early; not if it was told that late anyway. Zero: never.
    pub confirm_after: Duration,
    /// The only managers that events are kept for. Empty: any manager that is named, at most 32 at a time.
    pub managers: Vec<PathSegment>,
    /// How long [`put`](super::Outbox::put) waits for the disk; an event that is not written by then counts as in memory
    /// only. Default 2 ms. Under [`FsyncPolicy::Always`] it is a second.
    pub write_deadline: Duration,
}

impl Options {
    /// 64 MiB in `folder`, forced to the disk every second; a second event after 5 s; no configured managers.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            max_bytes: 64 << 20,
            fsync: FsyncPolicy::EachBatch(Duration::from_secs(1)),
            confirm_after: Duration::from_secs(5),
            managers: Vec::new(),
            write_deadline: Duration::from_millis(2),
        }
    }
}

/// When records are forced to the disk. All of them survive the end of the process, `kill -9` included: what was written
/// is the kernel's, which keeps it. They differ in what survives the end of the machine (power, kernel, hypervisor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Never, but for compactions: the machine's end may take whatever was put since the last one. Right for a `tmpfs`,
    /// and for an `emptyDir` of a node that does not come back with its disk.
    Never,
    /// By the upkeep, after so long, a second at most: the machine's end takes what was put since, no more.
    EachBatch(Duration),
    /// Before [`put`](super::Outbox::put) returns: the machine's end takes nothing. Every new object then waits for the disk,
    /// milliseconds instead of microseconds, and one for the other: the one policy under which admission is as slow as
    /// the disk.
    Always,
}
