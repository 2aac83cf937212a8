//! The serving certificate: self-issued by default, out of files on request.

use std::sync::Arc;

use chassis::readiness::Readiness;
use kube::Client;
use serve::TlsHandle;
use tokio_util::sync::CancellationToken;
use webhook::certificate::{
    Bundle, Cell, CertificateFiles, CertificateMetrics, CertificateSettings, Keeper, LiveEntry,
    Material, Presenter, StoredSecret, callers_trust, keep_issued, publish_authorities,
    serve_from_files, serve_from_secret, watch_entry, watch_files, watch_secret,
};
use webhook::self_review;

use super::Parts;

/// Everything about the certificate. Clones share it.
#[derive(Clone)]
pub(super) struct Certificates {
    client: Client,
    settings: Arc<CertificateSettings>,
    metrics: CertificateMetrics,
    readiness: Readiness,
    tls: TlsHandle,
    port: u16,
    entry: Cell<LiveEntry>,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Issued(Cell<StoredSecret>),
    Files(CertificateFiles, Cell<Material>),
}

impl Certificates {
    pub(super) fn new(parts: &Parts<'_>, tls: TlsHandle, port: u16) -> Self {
        let settings = CertificateSettings {
            configuration: parts.arguments.webhook_name.clone(),
            ..CertificateSettings::in_namespace(&parts.arguments.namespace)
        };
        Self {
            client: parts.client.clone(),
            settings: Arc::new(settings),
            metrics: parts.meters.certificate.clone(),
            readiness: parts.readiness.clone(),
            tls,
            port,
            entry: Cell::default(),
            source: match &parts.arguments.webhook_cert_path {
                None => Source::Issued(Cell::default()),
                Some(folder) => {
                    Source::Files(CertificateFiles::in_directory(folder), Cell::default())
                }
            },
        }
    }

    /// What every replica does: observe, present, and answer one review to itself.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let entry = watch_entry(
            self.client.clone(),
            Arc::clone(&self.settings),
            self.readiness.condition("webhook-configuration-watch"),
            self.entry.clone(),
        );
        let answered = self.readiness.condition("self-review");
        let self_review = async {
            let name = self.settings.server_name();
            self_review::until_answered(self.port, name, || self.trust(), &answered).await;
        };
        tokio::join!(entry, self.present(shutdown), self_review);
    }

    /// What only the leader does: issue and publish.
    pub(super) async fn keep(self, term: CancellationToken) {
        let keeper = Keeper {
            client: self.client,
            settings: self.settings,
            metrics: self.metrics,
        };
        match self.source {
            Source::Issued(secret) => keep_issued(keeper, secret, self.entry, term).await,
            Source::Files(_, files) => publish_authorities(keeper, files, self.entry, term).await,
        }
    }

    async fn present(&self, shutdown: CancellationToken) {
        let presenter = Presenter {
            tls: self.tls.clone(),
            condition: self.readiness.condition("certificate"),
            metrics: self.metrics.clone(),
            settings: Arc::clone(&self.settings),
        };
        let entry = self.entry.clone();
        match &self.source {
            Source::Issued(secret) => {
                let condition = self.readiness.condition("certificate-watch");
                let watch = watch_secret(
                    self.client.clone(),
                    Arc::clone(&self.settings),
                    condition,
                    secret.clone(),
                );
                tokio::join!(
                    watch,
                    serve_from_secret(presenter, secret.clone(), entry, shutdown)
                );
            }
            Source::Files(files, material) => {
                let watch = watch_files(files.clone(), material.clone());
                tokio::join!(
                    watch,
                    serve_from_files(presenter, material.clone(), entry, shutdown)
                );
            }
        }
    }

    fn trust(&self) -> Bundle {
        match &self.source {
            Source::Issued(secret) => callers_trust(&self.entry.seen(), &secret.seen()),
            Source::Files(_, files) => callers_trust(&self.entry.seen(), &files.seen()),
        }
    }
}
