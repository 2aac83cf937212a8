use rstest::rstest;

use super::*;
use crate::framing::is_framed_twice;

const HEADER_BYTES: usize = 64 * 1024;
const TWICE: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n";

fn waiting() -> Pulse {
    let pulse = Pulse::new(Instant::now(), HEADER_BYTES);
    pulse.rest();
    pulse
}

#[rstest]
#[case::at_once(4096)]
#[case::byte_by_byte(1)]
#[case::in_threes(3)]
fn a_header_is_judged_however_it_arrives(#[case] step: usize) {
    let pulse = waiting();
    let padded = TWICE.replace("Host: a", &format!("Host: {}", "a".repeat(3 * PIECE)));
    for part in format!("{padded}body").as_bytes().chunks(step) {
        pulse.received(part);
    }
    pulse.begin(|header| {
        assert_eq!(header, padded.as_bytes());
        assert!(is_framed_twice(header, "POST"));
    });
}

#[test]
fn what_is_kept_of_a_header_is_bounded() {
    let pulse = waiting();
    pulse.received(&vec![b'a'; 4 * HEADER_BYTES]);
    pulse.begin(|header| assert!(header.len() <= HEADER_BYTES + PIECE));
}

#[test]
fn each_request_is_judged_by_its_own_header() {
    let pulse = waiting();
    pulse.received(TWICE.as_bytes());
    pulse.begin(|_| ());
    pulse.received(b"the body");
    pulse.rest();
    pulse.received(b"GET / HTTP/1.1\r\n\r\n");
    pulse.begin(|header| assert_eq!(header, b"GET / HTTP/1.1\r\n\r\n"));
}

#[tokio::test(start_paused = true)]
async fn clocks_follow_the_stage() {
    let limits = Limits::default();
    let now = Instant::now();
    let pulse = Pulse::new(now, HEADER_BYTES);
    assert_eq!(
        pulse.due(&limits, Course::Serving),
        None,
        "the handshake has its own timer"
    );

    pulse.rest();
    assert_eq!(pulse.due(&limits, Course::Serving), Some(now + limits.idle));
    assert_eq!(
        pulse.due(&limits, Course::Stopping(now)),
        Some(now + limits.header),
        "never used"
    );
    pulse.received(b"GET");
    assert_eq!(
        pulse.due(&limits, Course::Serving),
        Some(now + limits.header)
    );
    pulse.begin(|_| ());
    assert_eq!(
        pulse.due(&limits, Course::Stopping(now)),
        None,
        "a handler has its own time"
    );
    pulse.rest();
    assert_eq!(
        pulse.due(&limits, Course::Stopping(now)),
        Some(now + LAST_LOOK),
        "used and idle"
    );
}

#[tokio::test(start_paused = true)]
async fn a_header_that_drips_gets_no_new_time() {
    let limits = Limits::default();
    let pulse = waiting();
    pulse.received(b"G");
    let due = pulse.due(&limits, Course::Serving);
    tokio::time::advance(Duration::from_secs(1)).await;
    pulse.received(b"E");
    assert_eq!(pulse.due(&limits, Course::Serving), due);
}

#[test]
fn only_a_peer_that_may_still_send_is_read_on() {
    let idle = waiting();
    assert!(!idle.close());

    let mid_header = waiting();
    mid_header.received(b"nonsense");
    assert!(mid_header.close());

    let unread = waiting();
    unread.begin(|_| ());
    unread.leave_unread();
    unread.rest();
    assert!(unread.close());
}
