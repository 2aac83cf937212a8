//! Tests of the server with real sockets, real TLS, and manually written requests.

mod drain;
mod exhaustion;
mod fixture;
mod handshake;
mod requests;

use std::cell::RefCell;
use std::time::Duration;

use rstest::rstest;
use tokio::time::Instant;

use super::*;

#[rstest]
#[case::out_of_descriptors(24, ACCEPT_PAUSE)]
#[case::peer_left_the_backlog(103, Duration::ZERO)]
#[tokio::test(start_paused = true)]
async fn errors_of_accepting_never_end_the_server(#[case] errno: i32, #[case] pause: Duration) {
    let error = || Err(io::Error::from_raw_os_error(errno));
    let script = RefCell::new(vec![Ok("connection"), error(), error(), error()]);
    let statistics = Statistics::default();
    let start = Instant::now();
    let next = accepted(
        || std::future::ready(script.borrow_mut().pop().unwrap()),
        &statistics,
    );
    assert_eq!(next.await, "connection");
    assert_eq!(statistics.get(Counter::AcceptErrors), 3);
    assert!(start.elapsed() >= 3 * pause && start.elapsed() < 3 * pause + ACCEPT_PAUSE);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let options = || Options::plain();
    let holder = Server::bind(([127, 0, 0, 1], 0).into(), options())
        .await
        .unwrap();
    let refused = Server::bind(holder.local_addr(), options())
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("failed to listen on {}", holder.local_addr())
    );
}
