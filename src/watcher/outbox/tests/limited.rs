//! Tests with real disks that refuse writes. The tests run as root, to whom file modes do not apply. Instead they use a
//! limit of the file size, and a directory of the kernel.

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::fixture::{LONG, event, manager};
use crate::outbox::{Options, Outbox, Stored};

/// Environment variable with the directory, for the process whose file size is limited.
const FOLDER: &str = "WATCHER_TEST_LIMITED_SPOOL";

/// Shell command that runs a program with a limit of 64 blocks per file, and ignores the signal at the limit.
const LIMITED: &str = r#"trap "" XFSZ && ulimit -f 64 && exec "$@""#;

/// Puts events until the disk refuses, continues, and prints the number of spooled events.
#[test]
#[ignore = "the process that the next test runs"]
fn limited() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let now = Instant::now();
    let options = Options::new(PathBuf::from(folder));
    let (outbox, recovered) = Outbox::open_patiently(options, now);
    assert_eq!(recovered.unusable, None);
    let put = |number| outbox.put(&manager("a"), &event(number), now);
    let spooled = (0..100_000).find(|number| put(*number) != Stored::Spooled);
    let spooled = spooled.unwrap();
    assert_eq!(put(200_000), Stored::MemoryOnly);
    // The limit applies to each file, so the next segment cannot store more pending events than the last.
    assert!(outbox.keep_up(now + Duration::from_mins(1), LONG));
    assert!(!outbox.report(now).on_disk);
    assert_eq!(put(200_001), Stored::MemoryOnly);
    let items = outbox.take(now, usize::MAX);
    assert_eq!(items.len(), spooled as usize + 3);
    let text = format!("\nspooled {spooled} \n");
    stdout().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_real_disk_that_is_full_takes_nothing_but_survival_and_has_a_note_of_that() {
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", LIMITED, "sh"])
        .arg(exe)
        .args(["--exact", "outbox::tests::limited::limited"])
        .args(["--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.lines().filter_map(|it| it.strip_prefix("spooled "));
    let spooled: usize = words
        .next()
        .unwrap_or_else(|| panic!("{output:?}"))
        .trim()
        .parse()
        .unwrap();
    assert!(spooled > 100, "{spooled}");
    let now = Instant::now();
    let options = Options::new(folder.path().to_owned());
    let (outbox, recovered) = Outbox::open_patiently(options, now);
    assert_eq!((recovered.items, recovered.unusable), (spooled, None));
    assert!(recovered.resync && recovered.torn_bytes == 0, "{output:?}");
    let report = outbox.manager_report(&manager("a"), now);
    assert!(report.resync.is_some() && outbox.report(now).on_disk);
}

#[test]
fn a_folder_that_is_not_writable_leaves_everything_in_memory() {
    let now = Instant::now();
    let (outbox, recovered) = Outbox::open(Options::new(PathBuf::from("/proc/self")), now);
    let unusable = recovered.unusable.unwrap();
    assert!(
        unusable.starts_with("failed to open the spool directory: "),
        "{unusable}"
    );
    assert_eq!(
        outbox.put(&manager("a"), &event(1), now),
        Stored::MemoryOnly
    );
    assert_eq!(outbox.take(now, 9).len(), 1);
    assert!(!outbox.report(now).on_disk);
}
