//! Tests of the loop with a simulated API server and a paused clock: an hour of elections takes milliseconds, and each
//! instant below is exact.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::*;
use testkit::apiserver::ApiServer;
use world::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_absent_lease_is_created_and_renewed() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    assert!(until("election", || replica.leads()).await < SECOND);
    let first = server.get();
    assert_eq!(first["spec"]["holderIdentity"], "a");
    assert_eq!(first["spec"]["leaseDurationSeconds"], 15);
    assert_eq!(replica.gauge(), 1);

    sleep(61 * SECOND).await;
    let later = server.get();
    assert_eq!(later["spec"]["acquireTime"], first["spec"]["acquireTime"]);
    assert_eq!(later["spec"]["leaseTransitions"], 1);
    assert_eq!(replica.terms(), 1);
    // One write per renewal and no read: 61 s in periods of 4 to 5 s.
    let requests = server.requests();
    let [get, create, update] =
        ["get", "create", "update"].map(|verb| format!("{verb} leases kyma-system/repairs"));
    assert_eq!(requests[..2], [get, create]);
    assert!((12..=15).contains(&(requests.len() - 2)), "{requests:?}");
    assert!(requests[2..].iter().all(|line| *line == update));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_left_alone() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    for renewal in 0..30 {
        let mut theirs = record("b");
        theirs["spec"]["renewTime"] = json!(format!("2026-01-01T00:00:{renewal:02}.000000Z"));
        server.put(&theirs);
        sleep(14 * SECOND).await;
    }
    assert_eq!(replica.terms(), 0);
    assert_eq!(server.holder().as_deref(), Some("b"));
    assert_eq!(replica.gauge(), 0);
}

#[rstest]
#[case::dead("b", 15 * SECOND, 21 * SECOND)]
#[case::released("", Duration::ZERO, SECOND)]
#[case::own_earlier_life("a", Duration::ZERO, SECOND)]
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_is_taken_over(
    #[case] holder: &str,
    #[case] least: Duration,
    #[case] most: Duration,
) {
    let server = Server::new();
    let mut theirs = record(holder);
    // The clock of the holder is ahead. Only the local clock is relevant.
    theirs["spec"]["renewTime"] = json!("2999-01-01T00:00:00.000000Z");
    server.put(&theirs);
    let replica = Replica::start(&server, "a");
    let waited = until("takeover", || replica.leads()).await;
    assert!((least..most).contains(&waited), "{waited:?}");
    assert_eq!(server.holder().as_deref(), Some("a"));
    assert_eq!(server.get()["metadata"]["labels"]["kept"], "yes");
}

#[rstest]
#[case::created_by_another(None)]
#[case::taken_by_another(Some(record("")))]
#[tokio::test(start_paused = true)]
async fn the_quicker_of_two_wins(#[case] before: Option<Value>) {
    let server = Server::new();
    if let Some(before) = before {
        server.put(&before);
    }
    let quicker = |server: &ApiServer| server.put(&record("b"));
    let _quicker = server
        .0
        .fault("create|update leases")
        .times(1)
        .before(quicker);
    let replica = Replica::start(&server, "a");
    sleep(14 * SECOND).await;
    assert_eq!(replica.terms(), 0);
    assert_eq!(server.holder().as_deref(), Some("b"));
    // The replica takes over after the Lease of the winner has expired.
    until("takeover", || replica.leads()).await;
}

#[rstest]
#[case::errors(Mood::Fails)]
#[case::silence(Mood::Hangs)]
#[tokio::test(start_paused = true)]
async fn work_is_fenced_before_the_lease_can_expire(#[case] mood: Mood) {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    until("election", || replica.leads()).await;
    sleep(60 * SECOND).await;

    let renewed = || server.get()["metadata"]["resourceVersion"].clone();
    let last = renewed();
    until("a renewal", || renewed() != last).await;
    let renewed_at = Instant::now();
    replica.mood(mood);
    until("fence", || !replica.leads()).await;
    let ended = *replica.log().last().unwrap() - renewed_at;
    assert!((9 * SECOND..=10 * SECOND).contains(&ended), "{ended:?}");
    assert_eq!(replica.gauge(), 0);

    sleep(60 * SECOND).await;
    assert_eq!(replica.terms(), 1);
    replica.mood(Mood::Answers);
    until("second term", || replica.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_interrupts_nothing() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    until("election", || replica.leads()).await;
    for (mood, lasts) in [
        (Mood::Fails, 3),
        (Mood::Hangs, 2),
        (Mood::WritesAndFails, 3),
    ] {
        replica.mood(mood);
        sleep(lasts * SECOND).await;
        replica.mood(Mood::Answers);
        sleep(20 * SECOND).await;
        assert_eq!((replica.terms(), replica.leads()), (1, true), "{mood:?}");
    }
    server.remove();
    sleep(20 * SECOND).await;
    assert_eq!((replica.terms(), replica.leads()), (1, true), "deleted");
    assert_eq!(server.holder().as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_force_ends_the_work() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    until("election", || replica.leads()).await;
    server.put(&record("b"));
    assert!(until("end", || !replica.leads()).await <= 6 * SECOND);
    assert_eq!(server.holder().as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_restored_api_server_ends_the_term_and_another_begins() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    until("election", || replica.leads()).await;
    let backup = server.get();
    sleep(120 * SECOND).await;
    let restored = Server::new();
    restored.put(&backup);
    replica.moves(&restored);
    let second = until("second term", || replica.terms() == 2).await;
    assert!(second <= 12 * SECOND, "{second:?}");
    until("leads", || replica.leads()).await;
    assert_eq!(restored.holder().as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_the_work_finish_and_a_successor_in() {
    let server = Server::new();
    let finished = Arc::new(AtomicUsize::new(0));
    let counter = finished.clone();
    let leaving = Replica::start_with(&server, "a", move |token| {
        let counter = counter.clone();
        async move {
            token.cancelled().await;
            sleep(3 * SECOND).await;
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    until("election", || leaving.leads()).await;
    let successor = Replica::start(&server, "b");
    sleep(7 * SECOND).await;
    assert_eq!(successor.terms(), 0);

    leaving.stop().await;
    assert_eq!(finished.load(Ordering::SeqCst), 1);
    assert_eq!(server.holder(), None);
    assert!(until("succession", || successor.leads()).await <= 5 * SECOND);
    assert_eq!(server.get()["spec"]["leaseTransitions"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_stuck_work_only_until_the_fence() {
    let server = Server::new();
    let stuck = |_| std::future::pending();
    let replica = Replica::start_with(&server, "a", stuck);
    until("election", || replica.leads()).await;
    let asked = Instant::now();
    replica.stop().await;
    assert!(asked.elapsed() <= 10 * SECOND, "{:?}", asked.elapsed());
    assert_eq!(server.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_campaign_that_gets_no_answer() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    replica.mood(Mood::Hangs);
    sleep(12 * SECOND).await;
    let asked = Instant::now();
    replica.stop().await;
    assert!(asked.elapsed() <= 5 * SECOND, "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_release_survives_a_renewal_whose_answer_was_lost() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    until("election", || replica.leads()).await;
    // Simulates that the renewal in progress at the shutdown was written: another version with the same holder.
    server.put(&record("a"));
    replica.stop().await;
    assert_eq!(server.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_never_releases_what_another_holds() {
    let server = Server::new();
    let replica = Replica::start(&server, "a");
    until("election", || replica.leads()).await;
    server.put(&record("b"));
    replica.stop().await;
    assert_eq!(server.holder().as_deref(), Some("b"));
}

#[rstest]
#[case::returning(false)]
#[case::panicking(true)]
#[tokio::test(start_paused = true)]
async fn work_that_ends_by_itself_gives_another_replica_a_turn(#[case] panics: bool) {
    let server = Server::new();
    let failing = Replica::start_with(&server, "a", move |_| async move {
        sleep(30 * SECOND).await;
        assert!(!panics, "part of the test");
    });
    until("election", || failing.leads()).await;
    let other = Replica::start(&server, "b");
    until("turn", || other.leads()).await;
    assert_eq!(failing.terms(), 1);
    assert!(!failing.running.is_finished());

    other.stop().await;
    until("second term", || failing.terms() == 2).await;
}

/// Decremented when the work has ended, and not only when its token is canceled.
struct Leading(Arc<AtomicUsize>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Two processes with generated identities, as outside Pods.
#[tokio::test(start_paused = true)]
async fn processes_with_random_identities_never_lead_at_once() {
    let server = Server::new();
    let replicas = [(); 2].map(|()| Replica::start(&server, Identity::random().as_str()));
    let leading = || replicas.iter().filter(|it| it.leads()).count();
    until("election", || leading() == 1).await;
    for _ in 0..600 {
        sleep(SECOND / 10).await;
        assert_eq!(leading(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_with_bad_luck_never_lead_at_once() {
    fastrand::seed(20_261_121);
    let server = Server::new();
    let leaders = Arc::new(AtomicUsize::new(0));
    let replicas = ["a", "b", "c"].map(|identity| {
        let leaders = leaders.clone();
        Replica::start_with(&server, identity, move |token| {
            let leaders = leaders.clone();
            async move {
                leaders.fetch_add(1, Ordering::SeqCst);
                let _leading = Leading(leaders);
                token.cancelled().await;
            }
        })
    });
    for _ in 0..3_600 {
        let replica = &replicas[fastrand::usize(..replicas.len())];
        let moods = [
            Mood::Answers,
            Mood::Fails,
            Mood::Hangs,
            Mood::WritesAndFails,
        ];
        replica.mood(moods[fastrand::usize(..moods.len())]);
        for _ in 0..10 {
            sleep(SECOND / 5).await;
            assert!(leaders.load(Ordering::SeqCst) <= 1);
        }
    }
    for replica in &replicas {
        assert!(replica.terms() > 3, "{}", replica.terms());
    }
}
