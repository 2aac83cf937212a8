use super::*;

fn new() -> ConnectionState {
    ConnectionState::new(true, Arc::default())
}

fn waiting() -> ConnectionState {
    let state = new();
    state.rest();
    state
}

#[test]
fn each_request_is_judged_by_its_own_header() {
    const TWICE: &[u8] = b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n";
    let state = waiting();
    state.received(TWICE);
    assert!(!state.begin("POST"));
    state.received(b"the body");
    state.rest();
    state.received(b"GET / HTTP/1.1\r\n\r\n");
    assert!(state.begin("GET"));
    state.rest();
    assert!(!state.begin("GET"), "pipelined: no byte of it was seen");
}

#[test]
fn bytes_of_a_header_are_counted_until_it_is_complete_or_the_connection_ends() {
    let all = Arc::<KeptBytes>::default();
    let counted = || all.headers.load(Ordering::Relaxed);
    let states = [(); 3].map(|()| ConnectionState::new(false, Arc::clone(&all)));
    for state in &states {
        state.received(b"of the handshake");
        state.rest();
        state.received(b"POST / HTTP/1.1");
    }
    assert_eq!(counted(), 45);
    let [complete, evicted, ended] = states;
    complete.begin("POST");
    complete.received(b"the body");
    assert_eq!(counted(), 30);
    evicted.evict();
    evicted.received(b"more");
    assert_eq!(counted(), 15);
    drop((ended, evicted));
    assert_eq!(counted(), 0);
}

#[tokio::test(start_paused = true)]
async fn clocks_follow_the_phase() {
    let limits = Limits::default();
    let now = Instant::now();
    let state = new();
    assert_eq!(
        state.due(&limits, ClosePhase::Open),
        None,
        "the handshake has its own timer"
    );

    state.rest();
    assert_eq!(
        state.due(&limits, ClosePhase::Open),
        Some(now + limits.idle)
    );
    assert_eq!(
        state.due(&limits, ClosePhase::Stopping(now)),
        Some(now + limits.header),
        "never used"
    );
    state.received(b"GET");
    assert_eq!(
        state.due(&limits, ClosePhase::Open),
        Some(now + limits.header)
    );
    state.begin("GET");
    assert_eq!(
        state.due(&limits, ClosePhase::Stopping(now)),
        None,
        "a handler has its own time"
    );
    state.rest();
    assert_eq!(
        state.due(&limits, ClosePhase::Stopping(now)),
        Some(now + LAST_LOOK),
        "used and idle"
    );
}

#[tokio::test(start_paused = true)]
async fn a_header_that_drips_gets_no_new_time() {
    let limits = Limits::default();
    let state = waiting();
    state.received(b"G");
    let due = state.due(&limits, ClosePhase::Open);
    tokio::time::advance(Duration::from_secs(1)).await;
    state.received(b"E");
    assert_eq!(state.due(&limits, ClosePhase::Open), due);
}

#[test]
fn only_a_peer_that_may_still_send_is_read_on() {
    let idle = waiting();
    assert!(!idle.close());

    let mid_header = waiting();
    mid_header.received(b"nonsense");
    assert!(mid_header.close());

    let unread = waiting();
    unread.begin("GET");
    unread.leave_unread();
    unread.rest();
    assert!(unread.close());
}
