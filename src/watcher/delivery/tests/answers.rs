//! Tests of responses and failures of KCP.

use super::*;
use crate::fixture::closed_port;

fn raw(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

/// The public watcher accepts only 200.
#[rstest]
#[case::ok(200)]
#[case::created(201)]
#[case::accepted(202)]
#[tokio::test]
async fn any_2xx_is_a_success(#[case] status: u16) {
    let fixture = Fixture::new().await;
    fixture.kcp.otherwise(Reply::Status(status, ""));
    let channel = fixture.channel();
    post(&channel).await.unwrap();
    post(&channel).await.unwrap();
    assert_eq!(fixture.kcp.opened(), 1);
}

#[tokio::test]
async fn so_is_204_which_has_no_body() {
    let fixture = Fixture::new().await;
    fixture
        .kcp
        .otherwise(raw("HTTP/1.1 204 No Content\r\n\r\n"));
    let channel = fixture.channel();
    post(&channel).await.unwrap();
    post(&channel).await.unwrap();
    assert_eq!(fixture.kcp.opened(), 1);
}

#[rstest]
#[case::server_error(500, "", None)]
#[case::unavailable(503, "Retry-After: 7", Some(7))]
#[case::slow_down(429, "retry-after: 86400", Some(300))]
#[case::bad_request(400, "", None)]
#[case::too_large(413, "", None)]
#[case::unauthorized(401, "", None)]
#[case::no_such_page(404, "", None)]
#[case::beyond_http(999, "", None)]
#[tokio::test]
async fn another_status_is_returned_with_its_retry_after(
    #[case] status: u16,
    #[case] header: &'static str,
    #[case] wait: Option<u64>,
) {
    let fixture = Fixture::new().await;
    fixture.kcp.next([Reply::Status(status, header)]);
    let channel = fixture.channel();
    let error = post(&channel).await.unwrap_err();
    assert!(matches!(error, PostError::Refused { status: it, .. } if it == status));
    assert_eq!(error.retry_after(), wait.map(Duration::from_secs));
    assert_eq!(error.reason(), "failed-request");
    // The connection can be reused after an error status.
    post(&channel).await.unwrap();
    assert_eq!(fixture.kcp.opened(), 1);
}

/// The public watcher follows redirects, as Go does by default. Events must not be sent to another address.
#[rstest]
#[case::moved(301)]
#[case::found(302)]
#[case::keep_the_method(307)]
#[case::keep_it_for_ever(308)]
#[tokio::test]
async fn a_redirect_is_not_followed(#[case] status: u16) {
    let fixture = Fixture::new().await;
    let elsewhere = Kcp::of(&fixture.authority).await;
    let location = format!("Location: https://{}/", elsewhere.address).leak();
    fixture.kcp.otherwise(Reply::Status(status, location));
    let error = post(&fixture.channel()).await.unwrap_err();
    assert!(matches!(error, PostError::Refused { status: it, .. } if it == status));
    assert_eq!((fixture.kcp.received().len(), elsewhere.opened()), (1, 0));
}

#[tokio::test]
async fn a_closed_port() {
    let fixture = Fixture::new().await;
    let closed = closed_port();
    let address = closed.local_addr().unwrap().to_string();
    let error = post(&channel(&address, &fixture.certificates, timeouts()))
        .await
        .unwrap_err();
    assert!(matches!(error, PostError::Unreachable(_)), "{error:?}");
    assert_eq!(
        (error.reason(), error.kind()),
        ("failed-request", "unreachable")
    );
}

#[tokio::test]
async fn a_name_that_does_not_resolve() {
    let fixture = Fixture::new().await;
    let error = post(&channel("kcp.invalid", &fixture.certificates, timeouts()))
        .await
        .unwrap_err();
    assert!(matches!(error, PostError::Unreachable(_)), "{error:?}");
}

#[rstest]
#[case::hanging(Reply::HANG)]
#[case::dripping(Reply::Drip)]
#[tokio::test]
async fn an_answer_that_does_not_come_is_not_waited_for(#[case] reply: Reply) {
    let fixture = Fixture::new().await;
    fixture.kcp.otherwise(reply);
    let channel = fixture.patient(Timeouts {
        answer: BRIEF,
        ..timeouts()
    });
    let error = post(&channel).await.unwrap_err();
    assert!(matches!(error, PostError::NoResponse), "{error:?}");
    // The connection is closed.
    fixture.kcp.open(0).await;
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_not_waited_for() {
    let fixture = Fixture::new().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let patience = Timeouts {
        connect: BRIEF,
        handshake: BRIEF,
        ..timeouts()
    };
    let error = post(&channel(&address, &fixture.certificates, patience))
        .await
        .unwrap_err();
    assert!(
        component_base::telemetry::error_chain(&error).contains("timed out in the TLS handshake"),
        "{error:?}"
    );
}

#[rstest]
#[case::before_it(b"")]
#[case::in_the_status(b"HTTP/1.1 20")]
#[case::in_the_head(b"HTTP/1.1 200 OK\r\ncontent-le")]
#[tokio::test]
async fn an_answer_cut_off_in_its_head_is_none(#[case] bytes: &[u8]) {
    let fixture = Fixture::new().await;
    fixture.kcp.otherwise(Reply::Cut(bytes.to_vec()));
    let error = post(&fixture.channel()).await.unwrap_err();
    assert!(matches!(error, PostError::Unreachable(_)), "{error:?}");
    assert_eq!(fixture.kcp.received().len(), 1);
}

/// The status decides the result. A retry would only duplicate the event.
#[rstest]
#[case::too_short(Reply::Cut(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nonly".to_vec()))]
#[case::too_long(raw(&format!("HTTP/1.1 200 OK\r\ncontent-length: 65536\r\n\r\n{}", "x".repeat(65536))))]
#[case::without_end(raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"))]
#[tokio::test]
async fn an_answer_counts_by_its_head_and_its_body_costs_the_connection(#[case] reply: Reply) {
    let fixture = Fixture::new().await;
    fixture.kcp.next([reply]);
    let channel = fixture.channel();
    post(&channel).await.unwrap();
    post(&channel).await.unwrap();
    assert_eq!((fixture.kcp.received().len(), fixture.kcp.opened()), (2, 2));
}

#[rstest]
#[case::no_http("SSH-2.0-OpenSSH_9.9\r\n\r\n")]
#[case::endless_head(&format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(1 << 20)))]
#[case::two_lengths("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx")]
#[tokio::test]
async fn what_is_no_answer_is_none(#[case] text: &str) {
    let fixture = Fixture::new().await;
    fixture.kcp.otherwise(raw(text));
    let error = post(&fixture.channel()).await.unwrap_err();
    assert!(matches!(error, PostError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn the_sync_mode_over_the_wire() {
    let fixture = Fixture::new().await;
    fixture.kcp.next([Reply::Status(400, ""), Reply::OK]);
    let (channel, manager, event) = (fixture.channel(), manager(), event("g", "n"));
    let deliver = || sync::deliver_now(&channel, sync::WAITS, &manager, &event);
    let (attempts, result) = deliver().await;
    assert_eq!((attempts, result.is_err()), (1, true));
    let (attempts, result) = deliver().await;
    assert_eq!((attempts, result.is_ok()), (1, true));
    assert_eq!(
        fixture.kcp.received()[1].header("kyma-watcher-sequence"),
        None
    );
}
