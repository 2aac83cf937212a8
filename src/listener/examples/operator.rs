//! An operator on KCP: listens, and reconciles what each notification concerns, until SIGTERM.
//!
//! `cargo run -p runtime-watcher-listener --example operator -- 127.0.0.1:8082 ca.crt`. With kube's Controller, pass
//! `notifications.object_refs(…)` (feature `kube`) to `Controller::reconcile_on` instead of `receive`.

use std::error::Error;
use std::net::SocketAddr;

use futures::StreamExt as _;
use runtime_watcher_listener::{
    CertificateCheck, Listener, Notification, Notifications, RuntimeIdFromCommonName, TrustAnchors,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A listener that accepts watchers whose certificates are signed by one of these CAs (PEM).
pub(crate) fn listener(
    address: SocketAddr,
    ca_bundle: &[u8],
) -> Result<(Listener, Notifications), Box<dyn Error + Send + Sync>> {
    let trust_anchors = TrustAnchors::from_pem(ca_bundle)?;
    let check = CertificateCheck::new(trust_anchors, RuntimeIdFromCommonName);
    let builder = Listener::builder(address, "lifecycle-manager").authentication(check);
    Ok(builder.build()?)
}

/// Calls `reconcile` with what to do, until the listener has ended.
pub(crate) async fn receive(mut notifications: Notifications, reconcile: impl Fn(String)) {
    while let Some(notification) = notifications.next().await {
        let runtime = notification.runtime_id().clone();
        reconcile(match notification {
            Notification::Changed(event) => {
                format!("{runtime}: {} {}", event.watched_gvk.kind, event.watched)
            }
            Notification::ResyncRequired { .. } => format!("{runtime}: list everything"),
            other => format!("{runtime}: {other:?}"),
        });
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it received")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("address missing")?.parse()?;
    let ca_bundle = std::fs::read(arguments.next().ok_or("CA bundle missing")?)?;
    let (listener, notifications) = listener(address, &ca_bundle)?;
    let shutdown = CancellationToken::new();
    let receiving = tokio::spawn(receive(notifications, |line| println!("{line}")));
    let serving = tokio::spawn(listener.run(shutdown.clone()));
    signal(SignalKind::terminate())?.recv().await;
    shutdown.cancel();
    serving.await??;
    Ok(receiving.await?)
}
