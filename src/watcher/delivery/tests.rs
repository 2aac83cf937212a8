//! Tests of the channel with a KCP of configurable behavior.

use std::sync::Arc;

use rstest::rstest;
use tokio::net::TcpListener;
use watcher_types::{BootId, Gvk, NamespacedName, PathSegment, WatchEvent};

use super::*;
use crate::certificates::Certificates;
use testkit::pki::Authority;

use crate::fixture::{Kcp, RUNTIME, Reply, Secret, ServerTls, certified};

mod answers;
mod rotation;
mod trust;

/// Limit of steps that time out in a test. `LONG` is the limit of steps that must not time out.
const BRIEF: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(20);

fn timeouts() -> Timeouts {
    Timeouts {
        connect: LONG,
        handshake: LONG,
        answer: LONG,
        idle: LONG,
    }
}

struct Fixture {
    authority: Authority,
    kcp: Kcp,
    certificates: Certificates,
    secret: Secret,
}

impl Fixture {
    async fn new() -> Self {
        let (authority, secret) = certified();
        let kcp = Kcp::of(&authority).await;
        Self {
            kcp,
            certificates: secret.load(),
            secret,
            authority,
        }
    }

    fn channel(&self) -> Channel {
        self.patient(timeouts())
    }

    fn patient(&self, timeouts: Timeouts) -> Channel {
        channel(&self.kcp.address.to_string(), &self.certificates, timeouts)
    }
}

fn channel(address: &str, certificates: &Certificates, timeouts: Timeouts) -> Channel {
    let options = ChannelOptions {
        kcp_address: KcpAddress::parse(address).unwrap(),
        contract: PathSegment::V2,
        boot_id: BootId::parse("life-1").unwrap(),
        connections: 4,
        timeouts,
    };
    Channel::new(options, certificates)
}

fn manager() -> PathSegment {
    PathSegment::parse("lifecycle-manager").unwrap()
}

fn event(group: &str, name: &str) -> WatchEvent {
    WatchEvent {
        watched: NamespacedName {
            namespace: "ns".into(),
            name: name.into(),
        },
        watched_gvk: Gvk {
            group: group.into(),
            version: "v1".into(),
            kind: "Kyma".into(),
        },
    }
}

async fn post(channel: &Channel) -> Result<(), PostError> {
    channel
        .post_event(&manager(), &event("g", "n"), Some(7))
        .await
}

#[rstest]
#[case::a_group("operator.kyma-project.io", r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1","kind":"Kyma"}}"#)]
#[case::the_core_group("", r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"","version":"v1","kind":"Kyma"}}"#)]
#[tokio::test]
async fn an_event_as_the_public_watcher_posts_it(#[case] group: &str, #[case] body: &str) {
    let fixture = Fixture::new().await;
    let channel = fixture.channel();
    let event = event(group, "n");
    channel
        .post_event(&manager(), &event, Some(7))
        .await
        .unwrap();
    channel.post_event(&manager(), &event, None).await.unwrap();
    let [numbered, plain] = fixture.kcp.received().try_into().unwrap();
    assert_eq!(numbered.line(), "POST /v2/lifecycle-manager/event HTTP/1.1");
    assert_eq!(
        numbered.header("host"),
        Some(&*fixture.kcp.address.to_string())
    );
    assert_eq!(numbered.header("content-type"), Some("application/json"));
    assert_eq!(
        numbered.header("content-length"),
        Some(&*body.len().to_string())
    );
    assert_eq!(numbered.body, body);
    assert_eq!(numbered.header("kyma-watcher-boot-id"), Some("life-1"));
    assert_eq!(numbered.header("kyma-watcher-sequence"), Some("7"));
    assert_eq!(plain.header("kyma-watcher-sequence"), None);
    assert_eq!(plain.header("kyma-watcher-boot-id"), None);
}

/// The contract version is configurable.
#[tokio::test]
async fn the_first_segment_is_the_contract() {
    let fixture = Fixture::new().await;
    let options = ChannelOptions {
        kcp_address: KcpAddress::parse(&fixture.kcp.address.to_string()).unwrap(),
        contract: PathSegment::parse("v1").unwrap(),
        boot_id: BootId::parse("life-1").unwrap(),
        connections: 1,
        timeouts: timeouts(),
    };
    post(&Channel::new(options, &fixture.certificates))
        .await
        .unwrap();
    assert_eq!(
        fixture.kcp.received()[0].line(),
        "POST /v1/lifecycle-manager/event HTTP/1.1"
    );
}

/// The public watcher opens a new connection for each event and leaves a socket open.
#[tokio::test]
async fn events_share_a_connection() {
    let fixture = Fixture::new().await;
    let channel = fixture.channel();
    for _ in 0..200 {
        post(&channel).await.unwrap();
    }
    assert_eq!(
        (fixture.kcp.received().len(), fixture.kcp.opened()),
        (200, 1)
    );
}

#[tokio::test]
async fn connections_are_few_however_many_post() {
    let fixture = Fixture::new().await;
    let channel = fixture.channel();
    let posts = (0..100).map(|_| post(&channel));
    for posted in futures::future::join_all(posts).await {
        posted.unwrap();
    }
    assert!(fixture.kcp.opened() <= 4, "{}", fixture.kcp.opened());
    assert_eq!(fixture.kcp.received().len(), 100);
}

#[tokio::test]
async fn requests_without_a_free_connection_fail_in_time() {
    let fixture = Fixture::new().await;
    fixture.kcp.otherwise(Reply::HANG);
    let channel = fixture.patient(Timeouts {
        answer: BRIEF,
        ..timeouts()
    });
    // Six requests share four connections, and the first four time out.
    let posts = futures::future::join_all((0..6).map(|_| post(&channel))).await;
    assert!(posts.iter().all(Result::is_err));
    assert!(fixture.kcp.received().len() <= 6);
}

#[tokio::test]
async fn a_connection_that_rests_for_long_is_closed() {
    let fixture = Fixture::new().await;
    let channel = fixture.patient(Timeouts {
        idle: BRIEF,
        ..timeouts()
    });
    post(&channel).await.unwrap();
    fixture.kcp.open(1).await;
    fixture.kcp.open(0).await;
    post(&channel).await.unwrap();
    assert_eq!(fixture.kcp.opened(), 2);
}

/// Gateways close idle connections. This is not a failure.
#[tokio::test]
async fn a_connection_that_kcp_closed_costs_no_event() {
    let fixture = Fixture::new().await;
    let channel = fixture.channel();
    fixture.kcp.otherwise(Reply::Close(200));
    for _ in 0..20 {
        post(&channel).await.unwrap();
    }
    assert_eq!(fixture.kcp.received().len(), 20);
}

/// KCP closes the connection while the request is being sent.
#[tokio::test]
async fn a_resting_connection_that_breaks_under_a_post_is_replaced_once() {
    let fixture = Fixture::new().await;
    let channel = fixture.channel();
    post(&channel).await.unwrap();
    fixture.kcp.next([Reply::Cut(Vec::new())]);
    post(&channel).await.unwrap();
    assert_eq!((fixture.kcp.received().len(), fixture.kcp.opened()), (3, 2));
    fixture.kcp.otherwise(Reply::Cut(Vec::new()));
    assert!(matches!(
        post(&channel).await,
        Err(PostError::Unreachable(_))
    ));
    assert_eq!(fixture.kcp.received().len(), 5);
}

#[tokio::test]
async fn a_post_that_is_given_up_spoils_its_connection() {
    let fixture = Fixture::new().await;
    let channel = fixture.channel();
    fixture.kcp.next([Reply::HANG]);
    tokio::select! {
        _ = post(&channel) => panic!("answered"),
        _ = fixture.kcp.requests(1) => {}
    }
    post(&channel).await.unwrap();
    assert_eq!(fixture.kcp.opened(), 2);
    fixture.kcp.open(1).await;
}
