//! A private registry: TLS from an authority of its own, and basic authentication.
//!
//! It is a real registry from which nodes really pull; without credentials it gives nothing. Authority, password and
//! certificate are made once and kept under `target/`, so clusters that trust it can be kept too. The Docker daemon pushes
//! to its port on loopback, where it accepts any certificate.

mod identity;

pub use identity::Identity;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use testcontainers::bollard::auth::DockerCredentials;
use testcontainers::core::ContainerPort;
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, GenericImage, ImageExt as _};
use testkit::until::until;

use crate::cluster::request;
use crate::docker::Docker;
use crate::images::Image;
use crate::run::Run;

/// The name by which nodes and the host know the registry.
pub const NAME: &str = "registry.landscape.test";

/// A running registry.
#[derive(Debug)]
pub struct Registry {
    container: ContainerAsync<GenericImage>,
    docker: Docker,
    identity: Identity,
    /// On loopback.
    port: u16,
    stays: bool,
}

impl Registry {
    /// Starts it in the run's network, or takes a kept one.
    pub async fn start(run: &Run, image: &str, identity: &Identity) -> anyhow::Result<Self> {
        // Clusters that start simultaneously share the kept registry: the first one creates it, the others find it.
        static LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _guard = if run.keeps() {
            Some(LOCK.lock().await)
        } else {
            None
        };
        let shape = (image, identity.certificate_pem.as_str());
        let slot = run.slot("registry", shape, true).await?;
        let mut request = request(image, &slot, PORT, "listening on")
            .with_copy_to(CERTIFICATE, identity.certificate_pem.clone().into_bytes())
            .with_copy_to(KEY, identity.key_pem.clone().into_bytes())
            .with_copy_to(USERS, identity.htpasswd()?.into_bytes());
        for (name, value) in SETTINGS {
            request = request.with_env_var(name, value);
        }
        let container = Box::pin(request.start()).await;
        let container = container.context("start the registry; see target/harness/logs")?;
        if !slot.exists {
            let joined = run.docker().join(container.id(), run.network(), NAME);
            joined.await?;
        }
        let mapped = || container.get_host_port_ipv4(PORT);
        let port = until("the registry's port is mapped", PATIENCE, mapped).await?;
        let registry = Self {
            docker: run.docker().clone(),
            identity: identity.clone(),
            stays: slot.stays,
            container,
            port,
        };
        let answers = || registry.requires_credentials();
        until("the registry requires credentials", PATIENCE, answers).await?;
        Ok(registry)
    }

    /// Removes the container, unless it is kept or was there before the run.
    pub async fn stop(self) -> anyhow::Result<()> {
        if self.stays {
            return Ok(());
        }
        self.docker.dispose(self.container).await
    }

    /// Host and port, as image references have them.
    #[must_use]
    pub fn host(&self) -> String {
        host()
    }

    /// Its authority, user and password.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Pushes an image under `name` (`repository:tag`) and returns the reference by which a node pulls it.
    pub async fn push(&self, image: &Image, name: &str) -> anyhow::Result<String> {
        let (repository, tag) = name.split_once(':').context("an image needs a tag")?;
        let target = format!("127.0.0.1:{}/{repository}", self.port);
        let credentials = DockerCredentials {
            username: Some(self.identity.user.clone()),
            password: Some(self.identity.password.clone()),
            ..Default::default()
        };
        let pushed = self
            .docker
            .push(&image.reference, (&target, tag), credentials);
        pushed.await?;
        Ok(format!("{}/{name}", host()))
    }

    /// Whether it answers by its name with a certificate of its authority, and rejects requests without credentials.
    async fn requires_credentials(&self) -> anyhow::Result<()> {
        let authority = reqwest::Certificate::from_pem(self.identity.ca_pem.as_bytes())?;
        let client = reqwest::Client::builder()
            .tls_certs_only([authority])
            .resolve(NAME, SocketAddr::from(([127, 0, 0, 1], self.port)))
            .build()?;
        let answer = client
            .get(format!("https://{NAME}:{}/v2/", self.port))
            .send()
            .await?;
        ensure!(
            answer.status() == http::StatusCode::UNAUTHORIZED,
            "{}",
            answer.status()
        );
        Ok(())
    }
}

/// Host and port of the registry, as image references have them.
#[must_use]
pub fn host() -> String {
    format!("{NAME}:5000")
}

const CERTIFICATE: &str = "/etc/registry/tls.crt";
const KEY: &str = "/etc/registry/tls.key";
const USERS: &str = "/etc/registry/htpasswd";
/// Settings of `registry:3` that name these files; the image that the set-up builds knows no others.
const SETTINGS: [(&str, &str); 6] = [
    ("REGISTRY_HTTP_TLS_CERTIFICATE", CERTIFICATE),
    ("REGISTRY_HTTP_TLS_KEY", KEY),
    ("REGISTRY_AUTH", "htpasswd"),
    ("REGISTRY_AUTH_HTPASSWD_REALM", "images"),
    ("REGISTRY_AUTH_HTPASSWD_PATH", USERS),
    ("OTEL_TRACES_EXPORTER", "none"),
];
const PORT: ContainerPort = ContainerPort::Tcp(5000);
const PATIENCE: Duration = Duration::from_secs(30);
