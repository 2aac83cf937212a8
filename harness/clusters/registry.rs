//! A private registry with TLS, its own CA and basic authentication.
//!
//! Nodes pull from it as from any registry; without credentials it rejects all requests. CA, password and certificate are
//! created once and stored under `target/`, so that clusters that trust the registry can be kept. The Docker daemon pushes to
//! the registry's port on loopback, for which it accepts any certificate.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use testcontainers::ImageExt as _;
use testcontainers::core::ContainerPort;
use testkit::pki::Authority;
use testkit::pki::rcgen::SanType;
use testkit::until::until;

use crate::cluster::{Container, request};
use crate::docker;
use crate::images::{Image, digest};
use crate::run::Run;
use crate::workspace;

/// Host names of the registry for nodes and the host. For clients these are two registries with the same content.
const NAMES: [&str; 2] = ["registry.landscape.test", "mirror.landscape.test"];
/// Host and port of the registry in image references.
pub const HOST: &str = "registry.landscape.test:5000";
/// Hosts and ports of the registry for all of its host names.
pub const HOSTS: [&str; 2] = [HOST, "mirror.landscape.test:5000"];

/// A running registry.
#[derive(Debug)]
pub struct Registry {
    container: Container,
    /// CA, users and password of the registry.
    pub identity: Identity,
    /// Port on loopback.
    port: u16,
}

impl Registry {
    /// Starts the registry in the run's network, or uses a kept one.
    pub async fn start(run: &Run, image: &str) -> anyhow::Result<Self> {
        // Clusters that start concurrently share a kept registry: the first creates it, the others find it.
        static LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _guard = LOCK.lock().await;
        let identity = Identity::at(&workspace::state().join("registry-of-two-names.json"))?;
        let shape = (image, identity.certificate_pem.as_str());
        let slot = run.slot("registry", shape, true).await?;
        let mut request = request(image, &slot, PORT, "listening on")
            .with_copy_to(CERTIFICATE, identity.certificate_pem.clone().into_bytes())
            .with_copy_to(KEY, identity.key_pem.clone().into_bytes())
            .with_copy_to(USERS, identity.htpasswd(&[0, 1])?.into_bytes());
        for (name, value) in SETTINGS {
            request = request.with_env_var(name, value);
        }
        let exists = slot.exists;
        let container = Container::start(slot, request).await?;
        if !exists {
            let aliases = NAMES.map(|name| format!("--alias={name}"));
            let aliases = aliases.each_ref().map(String::as_str);
            let network = [run.network(), container.id()];
            let connect = [&["network", "connect"], &aliases[..], &network[..]].concat();
            docker::must(&connect).await?;
        }
        let registry = Self {
            identity,
            port: container.port(PORT).await?,
            container,
        };
        if exists {
            // A run that was killed may have left the registry without a user.
            registry.accept(&[0, 1]).await?;
        }
        let answers = || registry.requires_credentials();
        until("the registry requires credentials", PATIENCE, answers).await?;
        Ok(registry)
    }

    /// Removes the container, unless it is kept or existed before the run.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.container.stop().await
    }

    /// Pushes an image under `name` (`repository:tag`) and returns the reference with which a node pulls it.
    pub async fn push(&self, image: &Image, name: &str) -> anyhow::Result<String> {
        let host = format!("127.0.0.1:{}", self.port);
        let config = self.identity.docker_config(&host);
        docker::push(&image.reference, &format!("{host}/{name}"), &config).await?;
        Ok(format!("{HOST}/{name}"))
    }

    /// Changes the set of users that the registry accepts, by number.
    pub async fn accept(&self, users: &[usize]) -> anyhow::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), self.identity.htpasswd(users)?)?;
        // The process of the registry may have another user ID.
        let readable = Permissions::from_mode(0o644);
        std::fs::set_permissions(file.path(), readable)?;
        let source = file.path().display().to_string();
        let target = format!("{}:{USERS}", self.container.id());
        docker::must(&["cp", &source, &target]).await.map(drop)
    }

    /// Fails unless the registry rejects a user, by number.
    pub async fn rejects(&self, user: usize) -> anyhow::Result<()> {
        let (name, password) = (&self.identity.users[user], &self.identity.password);
        let (port, ca) = (self.port, &self.identity.ca_pem);
        let status = status(port, ca, |it| it.basic_auth(name, Some(password))).await?;
        ensure!(status == http::StatusCode::UNAUTHORIZED, "{status}");
        Ok(())
    }

    /// Fails unless the registry has a certificate of its CA and rejects requests without credentials.
    async fn requires_credentials(&self) -> anyhow::Result<()> {
        let (port, ca) = (self.port, &self.identity.ca_pem);
        let status = status(port, ca, |request| request).await?;
        ensure!(status == http::StatusCode::UNAUTHORIZED, "{status}");
        Ok(())
    }
}

/// Returns the status of the first page of a registry on loopback.
async fn status(
    port: u16,
    ca_pem: &str,
    with: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
) -> anyhow::Result<http::StatusCode> {
    let authority = reqwest::Certificate::from_pem(ca_pem.as_bytes())?;
    let client = reqwest::Client::builder()
        .timeout(ANSWER_LIMIT)
        .tls_certs_only([authority])
        .resolve(NAMES[0], SocketAddr::from(([127, 0, 0, 1], port)))
        .build()?;
    let url = format!("https://{}:{port}/v2/", NAMES[0]);
    Ok(with(client.get(url)).send().await?.status())
}

/// Certificate of the registry, and credentials of its clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Certificate of the CA in PEM.
    pub ca_pem: String,
    certificate_pem: String,
    key_pem: String,
    users: [String; 2],
    password: String,
}

impl Identity {
    /// Returns the stored identity, so that kept clusters still trust it. Creates and stores one if there is none.
    fn at(file: &Path) -> anyhow::Result<Self> {
        let text =
            workspace::get_or_create(file, || Ok(serde_json::to_string_pretty(&Self::make()?)?))?;
        Ok(serde_json::from_str(&text)?)
    }

    fn make() -> anyhow::Result<Self> {
        let ca = Authority::new("registry authority of the harness")?;
        let mut names = Vec::new();
        for name in NAMES {
            names.push(SanType::DnsName(name.try_into()?));
        }
        let leaf = ca.leaf_with(NAMES[0], |params| params.subject_alt_names.extend(names))?;
        Ok(Self {
            ca_pem: ca.pem().to_owned(),
            certificate_pem: leaf.pem.clone(),
            key_pem: leaf.key_pem(),
            users: ["landscape", "rotated"].map(str::to_owned),
            // The digest of a new key is as random as the key, so the password needs no other random source.
            password: digest(leaf.key.serialized_der())["sha256:".len()..][..24].to_owned(),
        })
    }

    /// Returns the registry's file of users, in the format of `htpasswd -B`. All users have the same password.
    fn htpasswd(&self, users: &[usize]) -> anyhow::Result<String> {
        // The lowest cost, because the registry checks every request.
        let hash = bcrypt::hash(&self.password, 4)?;
        let mut lines = String::new();
        for user in users {
            let user = &self.users[*user];
            writeln!(lines, "{user}:{hash}")?;
        }
        Ok(lines)
    }

    /// Returns the data of a Secret of type `kubernetes.io/dockerconfigjson` with the first user.
    pub fn docker_config(&self, host: &str) -> String {
        self.docker_config_of(0, &[host])
    }

    /// Returns the same data for a user, by number, and for each of `hosts`.
    pub fn docker_config_of(&self, user: usize, hosts: &[&str]) -> String {
        let user = &self.users[user % self.users.len()];
        let auth = BASE64.encode(format!("{user}:{}", self.password));
        let credentials = serde_json::json!({
            "username": user, "password": self.password, "auth": auth,
        });
        let auths: serde_json::Map<_, _> = hosts
            .iter()
            .map(|host| ((*host).to_owned(), credentials.clone()))
            .collect();
        serde_json::json!({ "auths": auths }).to_string()
    }
}

const CERTIFICATE: &str = "/etc/registry/tls.crt";
const KEY: &str = "/etc/registry/tls.key";
const USERS: &str = "/etc/registry/htpasswd";
/// Settings of `registry:3` that name these files. The image that the set-up builds ignores them, because its paths are fixed.
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
/// Time limit of one request.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_to_a_registry_that_does_not_answer_ends() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let ca = Authority::new("registry").unwrap();
        let asked = tokio::time::timeout(PATIENCE, status(port, ca.pem(), |it| it)).await;
        let error = asked.unwrap().unwrap_err();
        assert!(format!("{error:#}").contains("timed out"), "{error:#}");
    }

    #[test]
    fn it_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/registry.json");
        let made = Identity::at(&file).unwrap();
        assert_eq!(Identity::at(&file).unwrap(), made);
    }
}
