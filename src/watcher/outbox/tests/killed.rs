//! Tests with processes that are killed, on a real disk.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{event, manager};
use crate::outbox::{FsyncPolicy, Options, Outbox, Recovered, Stored};

/// Environment variable with the directory, for the process that is killed.
const FOLDER: &str = "WATCHER_TEST_SPOOL";

const KILLS: u64 = 25;

fn open(folder: &Path) -> (Outbox, Recovered) {
    let options = Options {
        max_bytes: 256 << 10,
        fsync: FsyncPolicy::Never,
        follow_up_delay: Duration::ZERO,
        ..Options::new(folder.to_owned())
    };
    Outbox::open(options, Instant::now())
}

/// Prints each event that it has put, and each event before it is marked as delivered, until it is killed.
#[test]
#[ignore = "the process that the next test kills"]
fn victim() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let (outbox, _) = open(&PathBuf::from(folder));
    let mut told = stdout();
    for number in 0.. {
        let object = number * 7 % 61;
        // An event that is not on the disk in time need not survive.
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
            outbox.keep_up(Instant::now(), Duration::from_secs(30));
        }
    }
}

/// Runs a victim for `time`, and updates the set of events that must survive. Returns the number of printed lines.
fn live_and_die(folder: &Path, time: Duration, owed: &mut BTreeSet<String>) -> usize {
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
    let (mut said, mut began) = (0, None);
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
        let began = *began.get_or_insert_with(Instant::now);
        if began.elapsed() >= time
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
        let time = Duration::from_micros(round * round * 131);
        said += live_and_die(folder.path(), time, &mut owed);
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
