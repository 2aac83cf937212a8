//! A disk that takes its time: whatever the upkeep forces to it, nobody who puts an event waits for that.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rstest::rstest;

use super::disk::{Brake, FakeDisk};
use super::world::{World, event, manager, settings};
use crate::outbox::{FsyncPolicy, Settings, Stored};

/// So long nothing takes here that is not stuck.
const STUCK: Duration = Duration::from_secs(10);

#[rstest]
#[case::a_batch_and_a_compaction(FsyncPolicy::EachBatch(Duration::from_secs(1)), 5)]
#[case::a_compaction(FsyncPolicy::Never, 2)]
fn a_put_waits_for_nothing_that_the_upkeep_forces(
    #[case] fsync: FsyncPolicy,
    #[case] expected: u32,
) {
    let settings = Settings {
        fsync,
        ..settings()
    };
    let mut world = World::with(FakeDisk::default(), settings);
    for number in 0..3_000 {
        let _ = world.put("a", number);
        world.deliver_twice();
    }
    let _ = world.put("a", 0);
    let used = world.disk.content().used();
    let (asked, asking) = channel();
    let (go, going) = channel();
    let going = Mutex::new(going);
    world.disk.content().brake = Some(Arc::new(Brake { asked, go: going }));
    let (outbox, disk, now) = (world.outbox.clone(), world.disk.clone(), world.now);
    let upkeep = thread::spawn(move || {
        let _ = outbox.keep_up(now);
        // The last that asks.
        disk.content().brake = None;
    });
    let mut syncs = 0;
    loop {
        match asking.recv_timeout(STUCK) {
            Ok(()) => syncs += 1,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("the upkeep is stuck"),
        }
        let (outbox, now) = (world.outbox.clone(), world.now);
        let (put, stored) = channel();
        let putting =
            thread::spawn(move || put.send(outbox.put(&manager("a"), &event(syncs), now)));
        assert_eq!(stored.recv_timeout(STUCK), Ok(Stored::Spooled), "{syncs}");
        putting.join().unwrap().unwrap();
        go.send(()).unwrap();
    }
    upkeep.join().unwrap();
    assert_eq!(syncs, expected);
    assert!(world.disk.content().used() < used / 10);
    let recovered = world.kill();
    assert_eq!(
        (recovered.items, recovered.resync),
        (1 + syncs as usize, false)
    );
}
