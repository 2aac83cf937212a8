//! A private registry: TLS from an authority of our own, and basic authentication.
//!
//! Invariant: it is a real registry from which nodes really pull; without credentials it gives nothing. Authority,
//! password and certificate are made once and kept under `target/`, so clusters that trust it can be kept too. The
//! host pushes over the same TLS and name as the nodes pull. Deliberately absent: any image of its own.

mod identity;
mod push;

pub use identity::Identity;

use std::time::Duration;

use testcontainers::core::wait::LogWaitStrategy;
use testcontainers::core::{ContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, GenericImage, ImageExt as _, ReuseDirective};

use crate::cluster::{append, publish, split_reference};
use crate::docker::{Docker, DockerError};
use crate::images::{ImageError, ImageTar, digest};
use crate::run::{Run, kept_label};
use crate::workspace;
use testkit::until::{TooLate, until};

/// The name by which nodes and the host know the registry.
pub const NAME: &str = "registry.landscape.test";

/// A running registry.
#[derive(Debug)]
pub struct Registry {
    container: ContainerAsync<GenericImage>,
    docker: Docker,
    identity: Identity,
    client: push::RegistryClient,
    stays: bool,
}

impl Registry {
    /// Starts it in the run's network, or takes a kept one.
    ///
    /// # Errors
    /// When the container does not start or does not answer.
    pub async fn start(run: &Run, image: &str, identity: &Identity) -> Result<Self, RegistryError> {
        // Clusters that start simultaneously share the kept registry: the first one creates it, the others find it.
        static LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _guard = if run.keeps() {
            Some(LOCK.lock().await)
        } else {
            None
        };
        Self::get_or_create(run, image, identity).await
    }

    async fn get_or_create(
        run: &Run,
        image: &str,
        identity: &Identity,
    ) -> Result<Self, RegistryError> {
        let image_id = run
            .docker()
            .image_id(image)
            .await
            .map_err(RegistryError::Docker)?;
        let shape = format!(
            "{}{}",
            image_id.unwrap_or_default(),
            identity.certificate_pem
        );
        let digest = digest(shape.as_bytes())
            .trim_start_matches("sha256:")
            .to_owned();
        let kept = run
            .kept("registry", &digest, true)
            .await
            .map_err(RegistryError::Docker)?;
        let is_new = kept.is_none();
        let stays = run.keeps() || !is_new;
        let name = kept
            .as_ref()
            .map_or_else(|| run.container_name("registry"), |kept| kept.name.clone());
        let labels = kept.map_or_else(|| run.labels(&digest), |kept| kept_label(&kept));
        let reuse = if stays {
            ReuseDirective::Always
        } else {
            ReuseDirective::Never
        };
        let request = request(image, identity, &name)?
            .with_labels(labels)
            .with_reuse(reuse);
        let container = Box::pin(request.start())
            .await
            .map_err(|source| RegistryError::Start(Box::new(source)))?;
        if is_new {
            let joined = run
                .docker()
                .join(container.id(), run.network(), &[NAME])
                .await;
            joined.map_err(RegistryError::Docker)?;
        }
        let port = until("the registry's port is mapped", PATIENCE, || {
            container.get_host_port_ipv4(PORT)
        })
        .await
        .map_err(RegistryError::NotReady)?;
        let registry = Self {
            client: push::RegistryClient::new(identity, port)?,
            container,
            docker: run.docker().clone(),
            identity: identity.clone(),
            stays,
        };
        until("the registry answers", PATIENCE, || registry.answers())
            .await
            .map_err(RegistryError::NotReady)?;
        Ok(registry)
    }

    /// Removes the container, unless it is kept or was there before the run.
    ///
    /// # Errors
    /// When Docker refuses.
    pub async fn stop(self) -> Result<(), RegistryError> {
        if self.stays {
            return Ok(());
        }
        let disposed = self.docker.dispose(self.container).await;
        disposed.map_err(RegistryError::Docker)
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

    /// Puts an image under `name` (repository and tag) and gives the reference by which a node pulls it.
    ///
    /// # Errors
    /// When the archive cannot be read or the registry refuses.
    pub async fn push(&self, image: &ImageTar, name: &str) -> Result<String, RegistryError> {
        let (repository, tag) = split_reference(name);
        self.client
            .push(&self.identity, image, (repository, tag))
            .await?;
        Ok(format!("{}/{repository}:{tag}", host()))
    }

    async fn answers(&self) -> Result<(), String> {
        let status = self
            .client
            .status_without_credentials()
            .await
            .map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        // Anything but a refusal would mean that it gives images to everyone.
        if status == http::StatusCode::UNAUTHORIZED {
            Ok(())
        } else {
            Err(status.to_string())
        }
    }
}

/// Host and port of the registry, as image references have them.
#[must_use]
pub fn host() -> String {
    format!("{NAME}:5000")
}

fn request(
    image: &str,
    identity: &Identity,
    name: &str,
) -> Result<testcontainers::ContainerRequest<GenericImage>, RegistryError> {
    let (repository, tag) = split_reference(image);
    let log = workspace::logs().join(format!("{name}.log"));
    let request = GenericImage::new(repository, tag)
        .with_exposed_port(PORT)
        .with_wait_for(WaitFor::log(LogWaitStrategy::stdout_or_stderr(
            "listening on",
        )))
        .with_container_name(name)
        .with_copy_to(CERTIFICATE, identity.certificate_pem.clone().into_bytes())
        .with_copy_to(KEY, identity.key_pem.clone().into_bytes())
        .with_copy_to(USERS, identity.htpasswd()?.into_bytes())
        .with_host_config_modifier(|host| publish(host, PORT))
        .with_log_consumer(move |frame: &testcontainers::core::logs::LogFrame| append(&log, frame));
    Ok(SETTINGS
        .into_iter()
        .fold(request, |request, (name, value)| {
            request.with_env_var(name, value)
        }))
}

const CERTIFICATE: &str = "/etc/registry/tls.crt";
const KEY: &str = "/etc/registry/tls.key";
const USERS: &str = "/etc/registry/htpasswd";
/// How `registry:3` learns of these files; the image that the set-up builds knows no others.
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

/// The registry does not do its part.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Docker refused.
    #[error("the registry's container")]
    Docker(#[source] DockerError),
    /// The container did not start.
    #[error("the registry did not start; its log is under target/harness/logs")]
    Start(#[source] Box<testcontainers::TestcontainersError>),
    /// It started and does not answer.
    #[error("the registry is not ready")]
    NotReady(#[source] TooLate),
    /// Its certificates could not be made.
    #[error("the registry's certificates could not be made: {reason}")]
    Identity {
        /// Why.
        reason: String,
    },
    /// An image could not be read.
    #[error("an image could not be pushed")]
    Image(#[source] ImageError),
    /// The registry could not be reached.
    #[error("the registry could not be reached to {what}")]
    Http {
        /// What was asked.
        what: &'static str,
        /// Why not.
        source: reqwest::Error,
    },
    /// The registry refused.
    #[error("the registry refused to {what}: {status} {body}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Its answer.
        status: http::StatusCode,
        /// Its words.
        body: String,
    },
}
