//! Certificates that change while events flow.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use testkit::pki::{Leaf, today};

/// Gives the watcher another certificate of the same authority.
fn renew(world: &mut World) -> Leaf {
    let next = world.authority.leaf(RUNTIME).unwrap();
    world.secret.renew(world.authority.pem(), &next);
    world.certificates.poll(today());
    next
}

#[tokio::test]
async fn the_next_event_goes_by_the_files_of_the_hour() {
    let mut world = World::new().await;
    let channel = world.channel();
    post(&channel).await.unwrap();
    let next = renew(&mut world);
    post(&channel).await.unwrap();
    post(&channel).await.unwrap();
    let received = world.kcp.received();
    assert_ne!(received[0].client, next.der);
    assert_eq!(received[1].client, next.der);
    assert_eq!((received[1].connection, received[2].connection), (2, 2));
    // The connection of the old identity is not kept.
    world.kcp.open(1).await;
}

#[tokio::test]
async fn a_resting_connection_of_the_old_certificates_is_closed_without_an_event() {
    let mut world = World::new().await;
    let channel = world.channel();
    post(&channel).await.unwrap();
    world.kcp.open(1).await;
    renew(&mut world);
    world.kcp.open(0).await;
}

#[tokio::test]
async fn a_post_under_way_finishes_on_the_connection_it_has() {
    let mut world = World::new().await;
    let channel = Arc::new(world.channel());
    world.kcp.next([Reply::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(),
    )]);
    let next = world.authority.leaf(RUNTIME).unwrap();
    let posting = tokio::spawn({
        let channel = channel.clone();
        async move { post(&channel).await }
    });
    world.kcp.requests(1).await;
    world.secret.renew(world.authority.pem(), &next);
    world.certificates.poll(today());
    posting.await.unwrap().unwrap();
}

/// First both sides believe both, then each shows the
/// new, then the old is forgotten.
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
    // KCP believes both; the watcher believes both; the watcher shows the new; KCP shows the new; the old is forgotten.
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
