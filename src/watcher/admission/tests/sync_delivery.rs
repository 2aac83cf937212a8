//! Responses in the delivery mode `sync`. The attempts are tested in `delivery`.

use std::net::SocketAddr;

use rstest::rstest;
use testkit::until::until;

use super::*;
use crate::admission::sync_delivery::MAX_TIMEOUT;
use crate::certificates::Certificates;
use crate::delivery::sync::{WAITS, Waits};
use crate::delivery::{Channel, ChannelOptions, KcpAddress, Timeouts};
use crate::fixture::{Kcp, Reply, Secret, certified, closed_port};

/// Waits between attempts, of tests that are not about them.
const BRIEF: Waits = [Duration::from_millis(1); 2];

struct SyncFixture {
    fixture: Fixture,
    kcp: Kcp,
    _secret: Secret,
}

async fn sync() -> SyncFixture {
    sync_at(None).await
}

/// Returns a fixture that sends to `address` instead of the address of KCP, if `address` is set.
async fn sync_at(address: Option<SocketAddr>) -> SyncFixture {
    let (authority, secret) = certified();
    let kcp = Kcp::of(&authority).await;
    let certificates: Certificates = secret.load();
    let options = ChannelOptions {
        kcp_address: KcpAddress::parse(&address.unwrap_or(kcp.address).to_string()).unwrap(),
        contract: PathSegment::V2,
        boot_id: watcher_types::BootId::parse("boot").unwrap(),
        connections: 1,
        timeouts: Timeouts::default(),
    };
    let channel = Channel::new(options, &certificates);
    let fixture = with(DeliveryMode::sync(Arc::new(channel)), Watchers::default());
    SyncFixture {
        fixture,
        kcp,
        _secret: secret,
    }
}

impl SyncFixture {
    async fn says(&self, path: &str) -> String {
        let answered = self.fixture.send(path, changed("a").to_string()).await;
        assert_eq!(answered.status, StatusCode::OK);
        let answer: Value = serde_json::from_str(&answered.body).unwrap();
        assert_eq!(answer["response"]["allowed"], true);
        let message = &answer["response"]["status"]["message"];
        message.as_str().unwrap().to_owned()
    }

    fn delivery(&mut self) -> &mut SyncDelivery {
        match &mut self.fixture.service.delivery_mode {
            DeliveryMode::Sync(delivery) => delivery,
            DeliveryMode::Async => panic!("not sync"),
        }
    }

    fn failures(&self) -> Option<f64> {
        self.fixture
            .metric(r#"watcher_failed_kcp_total{error_reason="failed-request"}"#)
    }
}

#[tokio::test]
async fn the_event_is_delivered_before_the_response() {
    let mut sync = sync().await;
    assert_eq!(sync.delivery().waits, WAITS);
    assert_eq!(sync.says("/validate/kyma").await, "kcp request succeeded");
    let [received] = sync.kcp.received().try_into().unwrap();
    assert!(
        received.line().starts_with("POST /v2/kyma/event "),
        "{}",
        received.head
    );
    let body: Value = serde_json::from_str(&received.body).unwrap();
    assert_eq!(body, event("a"));
    assert_eq!(sync.fixture.bodies(), Vec::<Value>::new());
    assert_eq!(sync.fixture.service.outbox.receivers().len(), 1);
    assert_eq!(sync.fixture.metric("watcher_kcp_requests_total"), Some(1.0));
    assert_eq!(
        sync.fixture.metric("watcher_delivered_events_total"),
        Some(1.0)
    );
    assert_eq!(sync.failures(), None);
}

#[tokio::test]
async fn a_4xx_is_said_after_one_attempt_and_the_event_is_kept() {
    let sync = sync().await;
    sync.kcp.otherwise(Reply::Status(403, ""));
    assert_eq!(
        sync.says("/validate/kyma").await,
        "kcp request failed\nKCP returned 403"
    );
    assert_eq!(sync.kcp.received().len(), 1);
    assert_eq!(sync.failures(), Some(1.0));
    assert_eq!(sync.fixture.bodies(), [event("a")]);
}

/// A success at the second attempt counts as one failure.
#[tokio::test]
async fn a_5xx_is_tried_again() {
    let mut sync = sync().await;
    sync.delivery().waits = BRIEF;
    sync.kcp.next([Reply::Status(503, "")]);
    assert_eq!(sync.says("/validate/kyma").await, "kcp request succeeded");
    assert_eq!(sync.kcp.received().len(), 2);
    assert_eq!(sync.failures(), Some(1.0));
    assert_eq!(sync.fixture.bodies(), Vec::<Value>::new());
}

/// The message is the last error. The waits between the attempts are tested in `delivery`.
#[rstest]
#[case::unavailable(Some(Reply::Status(503, "")), 3, "KCP returned 503")]
#[case::refused(
    None,
    0,
    "connection to KCP failed: client error (Connect): tcp connect error: "
)]
#[tokio::test]
async fn after_three_attempts_it_is_said_and_the_event_is_kept(
    #[case] reply: Option<Reply>,
    #[case] heard: usize,
    #[case] why: &str,
) {
    let closed = closed_port();
    let mut sync = match reply {
        Some(reply) => {
            let sync = sync().await;
            sync.kcp.otherwise(reply);
            sync
        }
        None => sync_at(closed.local_addr().ok()).await,
    };
    sync.delivery().waits = BRIEF;
    let said = sync.says("/validate/kyma").await;
    let (before, why_said) = said.split_once('\n').unwrap();
    assert_eq!(before, "kcp request failed");
    assert!(why_said.starts_with(why), "{why_said}");
    assert_eq!(sync.kcp.received().len(), heard);
    assert_eq!(sync.failures(), Some(1.0));
    assert_eq!(sync.fixture.bodies(), [event("a")]);
}

#[tokio::test]
async fn the_api_server_is_answered_before_it_gives_up() {
    let sync = sync().await;
    sync.kcp.otherwise(Reply::HANG);
    let asked = Instant::now();
    let said = sync.says("/validate/kyma?timeout=1s").await;
    // Much less than without a timeout of the API server.
    assert!(asked.elapsed() < MAX_TIMEOUT / 2);
    assert_eq!(said, "kcp request failed\nKCP did not answer in time");
    assert_eq!(sync.failures(), Some(1.0));
    assert_eq!(sync.fixture.bodies(), [event("a")]);
}

#[tokio::test]
async fn a_client_that_disconnects_loses_no_event() {
    let sync = sync().await;
    sync.kcp.otherwise(Reply::HANG);
    let asking = sync
        .fixture
        .send("/validate/kyma", changed("a").to_string());
    tokio::select! {
        _ = asking => panic!("answered"),
        _ = sync.kcp.requests(1) => {}
    }
    assert_eq!(sync.fixture.bodies(), [event("a")]);
}

/// Reviews that wait for KCP occupy connections of the API server. A slow KCP must not block all connections.
#[tokio::test(flavor = "multi_thread")]
async fn the_65th_delivery_that_waits_is_answered_at_once_and_its_event_is_kept() {
    let mut sync = sync().await;
    sync.kcp.otherwise(Reply::HANG);
    let waiting: Vec<_> = (0..64)
        .map(|number| {
            let body = changed(&format!("waits-{number}")).to_string();
            let request = Request::post("/validate/kyma?timeout=30s").body(Body::from(body));
            let router = router(sync.fixture.service.clone());
            tokio::spawn(router.oneshot(request.unwrap()))
        })
        .collect();
    let permits = sync.delivery().permits.clone();
    let all_wait = async || permits.available_permits() == 0;
    until("64 deliveries", Duration::from_secs(20), all_wait)
        .await
        .unwrap();
    let asked = Instant::now();
    let said = sync.says("/validate/kyma?timeout=30s").await;
    assert!(asked.elapsed() < MAX_TIMEOUT / 10 * 9);
    assert_eq!(said, "kcp request failed\ntoo many deliveries wait for KCP");
    assert_eq!(sync.failures(), Some(1.0));
    assert_eq!(sync.fixture.bodies(), [event("a")]);

    // A review stops waiting when its client disconnects.
    for review in waiting {
        review.abort();
        assert!(review.await.unwrap_err().is_cancelled());
    }
    sync.kcp.otherwise(Reply::OK);
    assert_eq!(sync.says("/validate/kyma").await, "kcp request succeeded");
}
