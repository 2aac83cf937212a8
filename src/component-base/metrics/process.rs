//! Memory, CPU time, open files and start time of this process, from procfs at each scrape.
//!
//! Invariant: a value that cannot be read is omitted, and never reported as zero. On systems other than Linux all values
//! are omitted.

use std::fmt;
use std::fs;
use std::path::Path;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Clock ticks per second in procfs. The kernel keeps USER_HZ at 100 on all architectures of the images, independent of its
/// timer frequency (proc(5), time(7)).
const TICKS_PER_SECOND: f64 = 100.0;

/// Collector that reads the values at each scrape.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = ProcessStats::read(Path::new("/proc"));
        let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
        let encoder = &mut encoder;
        let help = "Resident memory size in bytes";
        let memory = stats.resident_bytes.map(ConstGauge::new);
        write(encoder, "process_resident_memory", help, bytes, memory)?;
        let help = "User and system CPU time, in seconds";
        let time = stats.cpu_seconds.map(ConstCounter::new);
        write(encoder, "process_cpu", help, seconds, time)?;
        let help = "Number of open file descriptors";
        let files = stats.open_files.map(ConstGauge::new);
        write(encoder, "process_open_fds", help, None, files)?;
        let help = "Start time of the process, in seconds since the epoch";
        let start = stats.start_seconds.map(ConstGauge::new);
        write(encoder, "process_start_time", help, seconds, start)
    }
}

fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    metric: Option<impl EncodeMetric>,
) -> Result<(), fmt::Error> {
    let Some(metric) = metric else { return Ok(()) };
    metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
}

#[derive(Debug, PartialEq)]
struct ProcessStats {
    resident_bytes: Option<u64>,
    cpu_seconds: Option<f64>,
    open_files: Option<u64>,
    start_seconds: Option<f64>,
}

impl ProcessStats {
    fn read(procfs: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(procfs.join(path)).unwrap_or_default();
        let times = CpuTimes::parse(&text("self/stat"));
        Self {
            resident_bytes: resident_bytes(&text("self/status")),
            cpu_seconds: times.as_ref().map(|times| times.cpu_seconds),
            open_files: fs::read_dir(procfs.join("self/fd"))
                .ok()
                .map(|entries| entries.map(|_| 1).sum()),
            start_seconds: boot_seconds(&text("stat"))
                .zip(times)
                .map(|(boot, times)| boot + times.start_after_boot_seconds),
        }
    }
}

/// Parses `VmRSS` of `/proc/self/status`, which is in KiB, so that the page size is not needed.
fn resident_bytes(status: &str) -> Option<u64> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Parses `btime` of `/proc/stat`: the boot time, in seconds since the epoch.
fn boot_seconds(stat: &str) -> Option<f64> {
    let value = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    value.trim().parse().ok()
}

#[derive(Debug, PartialEq)]
struct CpuTimes {
    cpu_seconds: f64,
    start_after_boot_seconds: f64,
}

impl CpuTimes {
    /// Parses `/proc/self/stat`. The second field is the name of the program in parentheses, which may contain spaces and
    /// parentheses, so fields are counted from the last `)`.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // Fields are numbered from 1 in proc(5); `fields` starts with number 3.
        let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND,
            start_after_boot_seconds: ticks(22)? / TICKS_PER_SECOND,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual("Name:\tx\nVmRSS:\t    1500 kB\nThreads:\t2\n", Some(1_536_000))]
    #[case::kernel_thread("Name:\tx\nThreads:\t2\n", None)]
    #[case::unreadable("", None)]
    #[case::another_unit("VmRSS:\t 3 MB\n", None)]
    fn resident_memory(#[case] status: &str, #[case] expected: Option<u64>) {
        assert_eq!(resident_bytes(status), expected);
    }

    #[rstest]
    #[case::usual("(app)")]
    #[case::hostile_name("(a) R 1 (b c)")]
    fn times_are_counted_behind_the_name(#[case] name: &str) {
        let stat = format!(
            "42 {name} S 1 42 42 0 -1 4194304 900 0 3 0 250 50 0 0 20 0 4 0 360000 1 2 3\n"
        );
        let expected = CpuTimes {
            cpu_seconds: 3.0,
            start_after_boot_seconds: 3_600.0,
        };
        assert_eq!(CpuTimes::parse(&stat), Some(expected));
    }

    #[rstest]
    #[case::empty("")]
    #[case::short("42 (app) S 1 2")]
    fn unreadable_times_are_missing(#[case] stat: &str) {
        assert_eq!(CpuTimes::parse(stat), None);
    }

    #[test]
    fn boot_time_is_one_line_among_many() {
        let stat = "cpu 1 2\nbtime 1700000000\nprocesses 5\n";
        assert_eq!(boot_seconds(stat), Some(1_700_000_000.0));
        assert_eq!(boot_seconds("cpu 1 2\n"), None);
    }

    #[test]
    fn figures_of_this_process_are_plausible() {
        let figures = ProcessStats::read(Path::new("/proc"));
        assert!(figures.resident_bytes.unwrap() > 500_000);
        assert!(figures.cpu_seconds.unwrap() >= 0.0);
        assert!(figures.open_files.unwrap() >= 3);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let age = now - figures.start_seconds.unwrap();
        assert!((-2.0..86_400.0).contains(&age), "{age}");
    }

    #[test]
    fn a_machine_without_procfs_reports_nothing() {
        let nothing = ProcessStats {
            resident_bytes: None,
            cpu_seconds: None,
            open_files: None,
            start_seconds: None,
        };
        assert_eq!(ProcessStats::read(Path::new("/nowhere")), nothing);
    }
}
