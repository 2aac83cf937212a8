//! Tests of what each failure delays, and for how long.

use rstest::rstest;

use super::*;

const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Random number for the shortest waits, which are half of the maximum.
const CHANCE: u64 = 0;

struct Fixture {
    circuit: CircuitBreakers,
    now: Instant,
}

fn manager(name: &str) -> PathSegment {
    PathSegment::parse(name).unwrap()
}

fn unreachable() -> PostError {
    PostError::Unreachable("connection refused".into())
}

fn unanswered() -> PostError {
    PostError::NoResponse
}

fn refused(status: u16, retry_after: Option<u64>) -> PostError {
    PostError::Refused {
        status,
        retry_after: retry_after.map(Duration::from_secs),
    }
}

impl Fixture {
    fn new() -> Self {
        Self {
            circuit: CircuitBreakers::new(BACKOFF),
            now: Instant::now(),
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn departs(&mut self, name: &str) -> Option<Instant> {
        self.asks(name).ok()
    }

    fn asks(&mut self, name: &str) -> Result<Instant, Option<Instant>> {
        self.circuit.permit(&manager(name), true, self.now)
    }

    /// Returns when the next probe of KCP is permitted.
    fn opens_at(&mut self) -> Instant {
        self.asks("a").unwrap_err().unwrap()
    }

    /// Returns the time until the next probe in milliseconds.
    fn probe_at(&mut self) -> u128 {
        let now = self.now;
        self.opens_at().duration_since(now).as_millis()
    }

    /// Returns whether a complete window of requests is permitted.
    fn is_whole(&mut self) -> bool {
        (0..8).all(|_| self.departs("a").is_some())
    }

    /// Records a failure. Returns the time until the retry in milliseconds.
    fn fails(&mut self, name: &str, sequence: u64, permit: Instant, error: &PostError) -> u128 {
        let item = Item::sample(name, sequence);
        let fate = self
            .circuit
            .failed(&item, permit, error, (self.now, CHANCE));
        let Settlement::Retry(at) = fate else {
            panic!("{fate:?}");
        };
        at.duration_since(self.now).as_millis()
    }
}

#[test]
fn a_broken_link_is_probed_by_one_at_a_time() {
    let mut fixture = Fixture::new();
    let tickets: Vec<_> = (0..8).map(|_| fixture.departs("a").unwrap()).collect();
    fixture.pass(1);
    assert_eq!(fixture.fails("a", 1, tickets[0], &unreachable()), 0);
    assert_eq!(fixture.probe_at(), 500);
    // The other requests of the window fail too, which does not increase the backoff.
    fixture.pass(1);
    for (sequence, &permit) in (2..).zip(&tickets[1..]) {
        fixture.fails("a", sequence, permit, &unreachable());
        assert_eq!(fixture.probe_at(), 499);
    }
    let mut waits = Vec::new();
    for sequence in 0..10 {
        fixture.now = fixture.opens_at();
        let probe = fixture.departs("a").unwrap();
        assert_eq!(fixture.asks("a"), Err(None));
        fixture.pass(10);
        fixture.fails("a", sequence, probe, &unreachable());
        waits.push(fixture.probe_at());
    }
    let expected = [
        1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000, 30_000,
    ];
    assert_eq!(waits, expected);
}

#[test]
fn new_certificates_open_the_link_and_what_the_old_ones_meet_shuts_it_no_more() {
    let mut fixture = Fixture::new();
    let [first, second] = [(); 2].map(|()| fixture.departs("a").unwrap());
    fixture.pass(1);
    fixture.fails("a", 1, first, &unreachable());
    fixture.pass(1);
    fixture.circuit.certificates_renewed(fixture.now);
    fixture.fails("a", 2, second, &unreachable());
    assert!(fixture.is_whole());
    // The new certificates do not work either, so the backoff restarts from its first value.
    let third = fixture.departs("a").unwrap();
    fixture.fails("a", 1, third, &unreachable());
    assert_eq!(fixture.probe_at(), 500);
}

#[rstest]
#[case::success(None)]
#[case::too_large(Some(413))]
#[case::unavailable(Some(503))]
fn any_answer_opens_the_link(#[case] status: Option<u16>) {
    let mut fixture = Fixture::new();
    let first = fixture.departs("a").unwrap();
    fixture.fails("a", 1, first, &unreachable());
    fixture.now = fixture.opens_at();
    let probe = fixture.departs("a").unwrap();
    match status {
        None => fixture.circuit.succeeded(&manager("a")),
        Some(status) => {
            fixture.fails("a", 1, probe, &refused(status, None));
        }
    }
    assert!(fixture.is_whole());
}

/// The request was sent on a connection that may be older than the outage.
#[test]
fn a_probe_that_is_not_answered_neither_opens_the_link_nor_puts_it_off() {
    let mut fixture = Fixture::new();
    let first = fixture.departs("a").unwrap();
    fixture.fails("a", 1, first, &unreachable());
    fixture.now = fixture.opens_at();
    let probe = fixture.departs("a").unwrap();
    fixture.pass(15_000);
    fixture.fails("a", 1, probe, &unanswered());
    assert!(fixture.circuit.is_open());
    assert!(fixture.departs("b").is_some());
    assert_eq!(fixture.asks("b"), Err(None));
}

#[test]
fn one_event_that_is_refused_delays_no_other() {
    let mut fixture = Fixture::new();
    for round in 0..10 {
        let permit = fixture.departs("a").unwrap();
        assert_eq!(fixture.fails("a", round, permit, &refused(413, None)), 500);
    }
    assert!(fixture.departs("a").is_some());
}

#[test]
fn one_event_that_breaks_its_listener_delays_no_other() {
    let mut fixture = Fixture::new();
    for _ in 0..10 {
        let permit = fixture.departs("a").unwrap();
        fixture.fails("a", 7, permit, &refused(500, None));
        fixture.pass(500);
    }
    assert!(fixture.departs("a").is_some());
    assert!(fixture.departs("a").is_some());
}

#[test]
fn two_events_in_a_row_shut_their_managers_gate_and_no_other() {
    let mut fixture = Fixture::new();
    for sequence in 1..=2 {
        let permit = fixture.departs("a").unwrap();
        fixture.fails("a", sequence, permit, &refused(503, None));
        fixture.pass(1);
    }
    assert_eq!(fixture.departs("a"), None);
    assert!(fixture.departs("b").is_some());
    fixture.pass(500);
    let probe = fixture.departs("a").unwrap();
    assert_eq!(fixture.departs("a"), None);
    // The retry comes after the events that wait for the circuit breaker, which permits a request earlier.
    assert_eq!(fixture.fails("a", 3, probe, &refused(503, None)), 1_500);
    fixture.pass(1_000);
    fixture.departs("a").unwrap();
    fixture.circuit.succeeded(&manager("a"));
    assert!(fixture.departs("a").is_some());
    assert!(fixture.departs("a").is_some());
}

#[test]
fn a_probe_that_never_reached_its_manager_leaves_the_gate_to_the_next() {
    let mut fixture = Fixture::new();
    let permit = fixture.departs("a").unwrap();
    fixture.fails("a", 1, permit, &refused(429, Some(1)));
    fixture.pass(1_250);
    let probe = fixture.departs("a").unwrap();
    fixture.fails("a", 1, probe, &unreachable());
    fixture.now = fixture.opens_at();
    assert!(fixture.departs("a").is_some());
}

#[test]
fn a_wait_that_kcp_asks_for_is_kept_by_all_of_the_manager() {
    let mut fixture = Fixture::new();
    let [first, second] = [(), ()].map(|()| fixture.departs("a").unwrap());
    // The smallest random number gives the longest wait: a quarter more.
    assert_eq!(
        fixture.fails("a", 1, first, &refused(503, Some(100))),
        125_000
    );
    assert_eq!(fixture.fails("a", 2, second, &refused(503, None)), 125_000);
    fixture.pass(124_999);
    assert_eq!(fixture.departs("a"), None);
    fixture.pass(1);
    assert!(fixture.departs("a").is_some());
}

#[test]
fn a_wait_asked_for_one_event_is_kept_by_that_alone() {
    let mut fixture = Fixture::new();
    let permit = fixture.departs("a").unwrap();
    assert_eq!(
        fixture.fails("a", 1, permit, &refused(413, Some(20))),
        25_000
    );
    assert!(fixture.departs("a").is_some());
}

#[rstest]
#[case::whole(100, u64::MAX, 100_000, 100_001)]
#[case::quarter_more(100, 0, 125_000, 125_000)]
#[case::five_minutes(300, 0, 375_000, 375_000)]
#[case::five_minutes_whole(300, u64::MAX, 300_000, 300_001)]
#[case::no_more_than_those(3_600, 0, 375_000, 375_000)]
#[case::nothing(0, 0, 0, 0)]
fn what_is_asked_for_is_the_least(
    #[case] asked: u64,
    #[case] random: u64,
    #[case] least: u128,
    #[case] most: u128,
) {
    let wait = jittered(Duration::from_secs(asked), random).as_millis();
    assert!((least..=most).contains(&wait), "{wait}");
}

#[test]
fn a_backlog_behind_a_gate_waits_for_the_same_moment_and_one_of_it_is_the_probe() {
    let mut fixture = Fixture::new();
    let permit = fixture.departs("a").unwrap();
    fixture.fails("a", 1, permit, &refused(503, Some(100)));
    let opens = Duration::from_secs(125);
    for _ in 0..1_000 {
        assert_eq!(fixture.asks("a"), Err(Some(fixture.now + opens)));
    }
    fixture.now += opens;
    fixture.departs("a").unwrap();
    assert_eq!(fixture.asks("a"), Err(None));
}

#[test]
fn managers_that_are_not_registered_any_more_are_forgotten() {
    let mut fixture = Fixture::new();
    for number in 0..100 {
        let name = format!("m{number}");
        let permit = fixture.departs(&name).unwrap();
        fixture.fails(&name, 1, permit, &refused(503, Some(10)));
        let permit = fixture.departs("held_up").unwrap();
        fixture.fails("held_up", number, permit, &unanswered());
        fixture
            .circuit
            .retain(|manager| *manager == self::manager(&name));
        assert_eq!(fixture.circuit.managers.len(), 1);
        assert_eq!(fixture.circuit.no_response.managers.len(), 0);
        assert_eq!(fixture.departs(&name), None);
    }
}
