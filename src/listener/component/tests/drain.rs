//! Tests of the shutdown. The public listener sends no response to requests in progress.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::fixture::{EVENT, Running, ca, check, disabled, options, post, watcher_header};
use crate::{
    Authentication, CertificateCheck, ClientIdentity, Error, Options, RuntimeId, Verifier,
    VerifyError,
};

/// Signals that it was called, and returns after it is released.
struct Gate {
    asked: Arc<Notify>,
    release: Arc<Notify>,
}

impl Verifier for Gate {
    fn verify(&self, identity: ClientIdentity) -> BoxFuture<'_, Result<RuntimeId, VerifyError>> {
        let id = identity
            .certificate
            .common_name()
            .and_then(RuntimeId::parse);
        Box::pin(async move {
            self.asked.notify_one();
            self.release.notified().await;
            id.ok_or(VerifyError::NoRuntimeId)
        })
    }
}

struct Gated {
    listener: Running,
    header: String,
    asked: Arc<Notify>,
    release: Arc<Notify>,
}

async fn gated(change: impl FnOnce(&mut Options)) -> Gated {
    let authority = ca();
    let (asked, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gate = Gate {
        asked: Arc::clone(&asked),
        release: Arc::clone(&release),
    };
    let check = CertificateCheck {
        verifier: Arc::new(gate),
        ..check(&authority)
    };
    let mut options = options(Authentication::Certificate(check));
    change(&mut options);
    Gated {
        listener: Running::with(options).await,
        header: watcher_header(&authority),
        asked,
        release,
    }
}

#[tokio::test]
async fn request_in_flight_at_shutdown_is_answered_and_delivered() {
    let mut gated = gated(|_| {}).await;
    let mut client = gated.listener.connect().await;
    client.send(&post(&[&gated.header], EVENT)).await.unwrap();
    gated.asked.notified().await;
    gated.listener.shutdown.cancel();
    gated.release.notify_one();
    let answer = client.response().await.unwrap();
    assert_eq!((answer.status, answer.closes()), (200, true));
    client.closed().await.unwrap();
    assert!(gated.listener.next_event().await.is_some());
    assert_eq!(gated.listener.next_event().await, None);
    gated.listener.ended().await.unwrap();
}

#[tokio::test]
async fn request_that_outlives_the_grace_is_cut_and_counted() {
    let gated = gated(|options| options.grace = Duration::from_millis(20)).await;
    let mut client = gated.listener.connect().await;
    client.send(&post(&[&gated.header], EVENT)).await.unwrap();
    gated.asked.notified().await;
    gated.listener.shutdown.cancel();
    client.closed().await.unwrap();
    let ended = gated.listener.ended().await;
    assert!(
        matches!(
            ended,
            Err(Error::Server(serve::Error::ShutdownTimeout {
                connections: 1,
                ..
            }))
        ),
        "{ended:?}"
    );
}

#[tokio::test]
async fn while_it_lingers_it_serves_and_asks_to_close() {
    let options = Options {
        linger: Duration::from_mins(1),
        ..options(disabled())
    };
    let listener = Running::with(options).await;
    let mut old = listener.connect().await;
    assert!(!old.ask(&post(&[], EVENT)).await.unwrap().closes());
    listener.shutdown.cancel();
    let answer = old.ask(&post(&[], EVENT)).await.unwrap();
    assert_eq!((answer.status, answer.closes()), (200, true));
    let answer = listener.ask(&post(&[], EVENT)).await;
    assert_eq!((answer.status, answer.closes()), (200, true));
}

#[tokio::test]
async fn idle_connections_end_with_it_and_none_is_accepted_afterwards() {
    let listener = Running::with(options(disabled())).await;
    let mut idle = listener.connect().await;
    assert_eq!(idle.ask(&post(&[], EVENT)).await.unwrap().status, 200);
    let address = listener.address;
    listener.shutdown.cancel();
    idle.closed().await.unwrap();
    listener.ended().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
