//! The KLM double as a program.

use clap::Parser as _;
use doubles::klm::{self, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_ansi(false).init();
    let shutdown = CancellationToken::new();
    let mut sigterm = signal(SignalKind::terminate())?;
    let stopped = shutdown.clone();
    tokio::spawn(async move {
        sigterm.recv().await;
        stopped.cancel();
    });
    klm::run(Settings::parse(), shutdown).await
}
