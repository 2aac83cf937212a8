//! An operator on KCP: `operator 127.0.0.1:8082 lifecycle-manager ca.crt` reconciles the object of each notification until
//! SIGTERM. With kube, pass `notifications.object_refs(…)` to `Controller::reconcile_on` instead of `receive`.

use std::time::Duration;

use futures::StreamExt as _;
use runtime_watcher_listener::{
    CertificateCheck, Listener, Notification, Notifications, RuntimeIdFromCommonName, TrustAnchors,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Creates a listener at `address` for the events of `manager`, from watchers with certificates of these CAs.
pub(crate) fn listener(
    (address, manager): (&str, &str),
    trust_anchors: TrustAnchors,
) -> Result<(Listener, Notifications)> {
    let check = CertificateCheck::new(trust_anchors, RuntimeIdFromCommonName);
    let builder = Listener::builder(address.parse()?, manager).authentication(check);
    Ok(builder.build()?)
}

/// Calls `reconcile` for each notification, until the listener has ended.
pub(crate) async fn receive(mut notifications: Notifications, reconcile: impl Fn(String)) {
    while let Some(notification) = notifications.next().await {
        let what = match &notification {
            Notification::Changed(event) => format!("{} {}", event.watched_gvk.kind, event.watched),
            Notification::ResyncRequired { .. } => "list everything".to_owned(),
            other => format!("{other:?}"),
        };
        reconcile(format!("{}: {what}", notification.runtime_id()));
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, manager, ca_file] = &arguments[..] else {
        return Err("expected ADDRESS MANAGER CA_FILE".into());
    };
    let trust_anchors = TrustAnchors::from_pem(&std::fs::read(ca_file)?)?;
    let (listener, notifications) = listener((address, manager), trust_anchors.clone())?;
    let mut sigterm = signal(SignalKind::terminate())?;
    let shutdown = CancellationToken::new();
    let receiving = tokio::spawn(receive(notifications, |line| println!("{line}")));
    let serving = tokio::spawn(listener.run(shutdown.clone()));
    // The file of a mounted Secret changes when the CA is rotated.
    let period = Duration::from_secs(5);
    while !serving.is_finished() && timeout(period, sigterm.recv()).await.is_err() {
        let reloaded = std::fs::read(ca_file).map(|pem| trust_anchors.replace(&pem));
        if !matches!(reloaded, Ok(Ok(()))) {
            println!("{ca_file} was not reloaded: {reloaded:?}");
        }
    }
    shutdown.cancel();
    serving.await??;
    Ok(receiving.await?)
}
