//! Tests with processes that are killed, on a real disk.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{LONG, event, manager};
use crate::outbox::{FsyncPolicy, Options, Outbox, Recovered, Stored};

/// Environment variable with the directory, for the process that is killed.
const FOLDER: &str = "WATCHER_TEST_SPOOL";

const KILLS: usize = 25;

fn open(folder: &Path) -> (Outbox, Recovered) {
    let options = Options {
        max_bytes: 256 << 10,
        fsync: FsyncPolicy::Never,
        follow_up_delay: Duration::ZERO,
        ..Options::new(folder.to_owned())
    };
    // A put that is not acknowledged prints nothing, and need not survive.
    Outbox::open_patiently(options, Instant::now())
}

/// Prints each event that it has put, and each event before it is marked as delivered, until it is killed.
#[test]
#[ignore = "the process that the next test kills"]
fn victim() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let (outbox, recovered) = open(&PathBuf::from(folder));
    assert_eq!(recovered.unusable, None);
    let mut told = stdout();
    for number in 0.. {
        let object = number * 7 % 61;
        let stored = outbox.put(&manager("a"), &event(object), Instant::now());
        if stored != Stored::MemoryOnly {
            told.write_all(format!("\nput {object} \n").as_bytes())
                .unwrap();
        }
        for item in outbox
            .take(Instant::now(), 3)
            .iter()
            .skip(number as usize % 2)
        {
            let name = &item.event.watched.name;
            told.write_all(format!("\ngone {name} \n").as_bytes())
                .unwrap();
            outbox.delivered(item, Instant::now());
        }
        if number % 300 == 299 {
            outbox.keep_up(Instant::now(), LONG);
        }
    }
}

/// Runs a victim, and kills it at any time after it has printed `lines`. Updates the set of events that must survive. Returns
/// the number of printed lines.
fn live_and_die(folder: &Path, lines: usize, owed: &mut BTreeSet<String>) -> usize {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "outbox::tests::killed::victim",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    let mut killer = Some(victim);
    let mut said = 0;
    for line in output.split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        // A line that ends with a space is complete.
        let words = text.strip_suffix(' ').and_then(|text| text.split_once(' '));
        match words {
            Some(("put", object)) => owed.insert(object.to_owned()),
            Some(("gone", object)) => owed.remove(object),
            _ => continue,
        };
        said += 1;
        if said > lines
            && let Some(mut victim) = killer.take()
        {
            victim.kill().unwrap();
            victim.wait().unwrap();
        }
    }
    said
}

#[test]
fn a_process_killed_at_any_time_has_lost_nothing_that_it_had_put() {
    let folder = tempfile::tempdir().unwrap();
    let (mut said, mut owed) = (0, BTreeSet::new());
    for round in 0..KILLS {
        said += live_and_die(folder.path(), 8 * round * round, &mut owed);
        let (outbox, recovered) = open(folder.path());
        assert_eq!(recovered.unusable, None);
        let items = outbox.take(Instant::now(), usize::MAX);
        let found: BTreeSet<_> = items
            .iter()
            .map(|item| item.event.watched.name.clone())
            .collect();
        let lost: Vec<_> = owed.difference(&found).collect();
        assert!(lost.is_empty(), "{lost:?} of {owed:?}");
    }
    assert!(said > 1_000, "{said}");
}
