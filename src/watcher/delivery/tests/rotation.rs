//! Tests of changes of certificates while events are delivered.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use testkit::pki::{Leaf, today};

/// Gives the watcher another certificate of the same CA.
fn renew(fixture: &mut Fixture) -> Leaf {
    let next = fixture.authority.leaf(RUNTIME).unwrap();
    fixture.secret.renew(fixture.authority.pem(), &next);
    fixture.certificates.poll(today());
    next
}

#[tokio::test]
async fn the_next_event_goes_by_the_files_of_the_hour() {
    let mut fixture = Fixture::new().await;
    let channel = fixture.channel();
    post(&channel).await.unwrap();
    let next = renew(&mut fixture);
    post(&channel).await.unwrap();
    post(&channel).await.unwrap();
    let received = fixture.kcp.received();
    assert_ne!(received[0].client, next.der);
    assert_eq!(received[1].client, next.der);
    assert_eq!((received[1].connection, received[2].connection), (2, 2));
    // The connection with the old certificate is closed.
    fixture.kcp.open(1).await;
}

#[tokio::test]
async fn a_post_under_way_finishes_on_the_connection_it_has() {
    let mut fixture = Fixture::new().await;
    let channel = Arc::new(fixture.channel());
    fixture.kcp.next([Reply::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(),
    )]);
    let next = fixture.authority.leaf(RUNTIME).unwrap();
    let posting = tokio::spawn({
        let channel = channel.clone();
        async move { post(&channel).await }
    });
    fixture.kcp.requests(1).await;
    fixture.secret.renew(fixture.authority.pem(), &next);
    fixture.certificates.poll(today());
    posting.await.unwrap().unwrap();
}

/// First both sides trust both CAs, then both sides present the new certificates, then the old CA is removed.
#[tokio::test]
async fn a_rotation_under_load_fails_no_handshake() {
    let (old, new) = (
        Authority::new("fleet").unwrap(),
        Authority::new("fleet").unwrap(),
    );
    let both = format!("{}{}", old.pem(), new.pem());
    let (first, second) = (old.leaf(RUNTIME).unwrap(), new.leaf(RUNTIME).unwrap());
    let kcp = Kcp::of(&old).await;
    let mut secret = Secret::of(&old, &first);
    let certificates = secret.load();
    let channel = Arc::new(channel(&kcp.address.to_string(), &certificates, timeouts()));
    let (stop, sent) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (channel, stop, sent) = (channel.clone(), stop.clone(), sent.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    post(&channel).await.unwrap();
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let swap = |secret: &mut Secret, bundle: &str, leaf: &Leaf| {
        secret.renew(bundle, leaf);
        certificates.poll(today());
    };
    let mut heard = kcp.requests(40).await.len();
    // Steps: KCP trusts both CAs; the watcher trusts both; the watcher presents the new certificate; KCP presents the new
    // certificate; the old CA is removed.
    let steps: [(&Authority, &[&Authority], &str, &Leaf); 5] = [
        (&old, &[&old, &new], old.pem(), &first),
        (&old, &[&old, &new], &both, &first),
        (&old, &[&old, &new], &both, &second),
        (&new, &[&old, &new], &both, &second),
        (&new, &[&new], new.pem(), &second),
    ];
    for (server, clients, bundle, leaf) in steps {
        kcp.replace_tls(ServerTls::new(&server.leaf(RUNTIME).unwrap(), clients));
        swap(&mut secret, bundle, leaf);
        heard = kcp.requests(heard + 100).await.len();
    }
    stop.store(true, Ordering::SeqCst);
    for task in load {
        task.await.unwrap();
    }
    assert_eq!(kcp.failed_handshakes(), 0);
    assert!(sent.load(Ordering::SeqCst) >= 500);
    let last = kcp.received().pop().unwrap();
    assert_eq!(last.client, second.der);
}
