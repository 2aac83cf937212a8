//! An operator in small: takes events, prints what it would reconcile, and says which runtimes are silent.
//!
//! `cargo run -p listener --example receive -- 127.0.0.1:8082 ca.crt`, then POST a WatchEvent with the header of a gateway.

use std::error::Error;
use std::net::SocketAddr;

use futures::StreamExt as _;
use listener::{
    Authentication, Authorities, Bound, CertificateCheck, Events, Liveness, Options,
    RuntimeIdFromCommonName, register_listener_component,
};
use tokio_util::sync::CancellationToken;

/// Takes the address, and believes the certificates of one authority.
pub(crate) async fn open(
    address: SocketAddr,
    ca_bundle: &[u8],
) -> Result<(Bound, Events, Liveness), Box<dyn Error + Send + Sync>> {
    let authorities = Authorities::from_pem(ca_bundle)?;
    let check = CertificateCheck::new(authorities, RuntimeIdFromCommonName);
    let options = Options::new(Authentication::Certificate(check));
    let (listener, events) = register_listener_component(address, "lifecycle-manager", options)?;
    let liveness = listener.liveness();
    Ok((listener.bind().await?, events, liveness))
}

/// Hands each event to `reconcile` until the listener has ended.
pub(crate) async fn receive(mut events: Events, liveness: Liveness, reconcile: impl Fn(String)) {
    while let Some(event) = events.next().await {
        if let Some(runtime) = &event.runtime_id {
            reconcile(format!(
                "{runtime}: {} {}",
                event.watched_gvk.kind, event.watched
            ));
        }
        for quiet in liveness.snapshot().iter().filter(|runtime| runtime.silent) {
            reconcile(format!("{}: silent", quiet.runtime_id));
        }
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it received")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("address missing")?.parse()?;
    let ca_bundle = std::fs::read(arguments.next().ok_or("CA bundle missing")?)?;
    let (bound, events, liveness) = open(address, &ca_bundle).await?;
    let shutdown = CancellationToken::new();
    let receiving = tokio::spawn(receive(events, liveness, |line| println!("{line}")));
    let serving = tokio::spawn(bound.run(shutdown.clone()));
    tokio::signal::ctrl_c().await?;
    shutdown.cancel();
    serving.await??;
    receiving.await?;
    Ok(())
}
