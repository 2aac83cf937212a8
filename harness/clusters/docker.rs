//! What the harness asks of Docker beside starting containers, which testcontainers does.
//!
//! Lists, networks, pushes and removals go through the API; programs in containers, logs and copies through the `docker`
//! program, which pairs their streams and unpacks archives. Removing what is gone already is no error, so that teardown
//! and sweep may overlap.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::TryStreamExt as _;
use testcontainers::bollard::Docker as Api;
use testcontainers::bollard::auth::DockerCredentials;
use testcontainers::bollard::errors::Error;
use testcontainers::bollard::models::{
    EndpointSettings, NetworkConnectRequest, NetworkCreateRequest,
};
use testcontainers::bollard::query_parameters::{
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, PushImageOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveImageOptions, TagImageOptionsBuilder,
};
use testcontainers::{ContainerAsync, Image};
use tokio::process::Command;
use tokio::time::timeout;

/// A connection to the Docker daemon.
#[derive(Debug, Clone)]
pub(crate) struct Docker(Api);

/// A container or network that a run made.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// Docker's ID.
    pub id: String,
    /// Docker's name.
    pub name: String,
    /// All its labels.
    pub labels: HashMap<String, String>,
    /// For containers: whether it runs.
    pub running: bool,
}

/// What a program in a container wrote, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Docker {
    /// Connects, and agrees with the daemon on a version of the API.
    pub(crate) async fn connect() -> anyhow::Result<Self> {
        let api = Api::connect_with_defaults().context("connect to Docker")?;
        let api = api.negotiate_version().await;
        Ok(Self(api.context("Docker does not answer")?))
    }

    /// The ID of an image, if the daemon has it.
    pub(crate) async fn image_id(&self, reference: &str) -> anyhow::Result<Option<String>> {
        match self.0.inspect_image(reference).await {
            Ok(image) => Ok(image.id),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error).context(format!("look for the image {reference}")),
        }
    }

    /// Pushes an image of the daemon to `repository:tag`, whose first part is the registry.
    pub(crate) async fn push(
        &self,
        image: &str,
        (repository, tag): (&str, &str),
        credentials: DockerCredentials,
    ) -> anyhow::Result<()> {
        let name = TagImageOptionsBuilder::new().repo(repository).tag(tag);
        self.0.tag_image(image, Some(name.build())).await?;
        let options = PushImageOptionsBuilder::new().tag(tag).build();
        let pushing = self
            .0
            .push_image(repository, Some(options), Some(credentials));
        let pushed = pushing.try_for_each(async |_| Ok(())).await;
        // Only the name: the image has another one.
        let name = format!("{repository}:{tag}");
        self.0
            .remove_image(&name, None::<RemoveImageOptions>, None)
            .await?;
        pushed.with_context(|| format!("push {name}"))
    }

    /// Containers that carry the label `key`, stopped ones too.
    pub(crate) async fn containers(&self, key: &str) -> anyhow::Result<Vec<Labelled>> {
        let filters = HashMap::from([("label", vec![key])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters);
        let found = self.0.list_containers(Some(options.build())).await?;
        let labelled = found.into_iter().map(|container| {
            let names = container.names.unwrap_or_default();
            let name = names
                .first()
                .map_or("", |name| name.trim_start_matches('/'));
            Labelled {
                id: container.id.unwrap_or_default(),
                name: name.to_owned(),
                labels: container.labels.unwrap_or_default(),
                running: container
                    .state
                    .is_some_and(|it| it.to_string() == "running"),
            }
        });
        Ok(labelled.collect())
    }

    /// Networks that carry the label `key`.
    pub(crate) async fn networks(&self, key: &str) -> anyhow::Result<Vec<Labelled>> {
        let filters = HashMap::from([("label", vec![key])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
        let found = self.0.list_networks(Some(options)).await?;
        let labelled = found.into_iter().map(|network| Labelled {
            id: network.id.unwrap_or_default(),
            name: network.name.unwrap_or_default(),
            labels: network.labels.unwrap_or_default(),
            running: false,
        });
        Ok(labelled.collect())
    }

    /// Creates a bridge network. Where `bridge` names its bridge, the daemon accepts that name once, whichever clients ask
    /// at the same time; the name of a network it accepts several times.
    pub(crate) async fn create_network(
        &self,
        name: &str,
        bridge: Option<&str>,
        labels: HashMap<String, String>,
    ) -> anyhow::Result<()> {
        let option = |bridge: &str| {
            [(
                "com.docker.network.bridge.name".to_owned(),
                bridge.to_owned(),
            )]
        };
        let request = NetworkCreateRequest {
            name: name.to_owned(),
            driver: Some("bridge".to_owned()),
            options: bridge.map(|bridge| option(bridge).into()),
            labels: Some(labels),
            ..Default::default()
        };
        let created = self.0.create_network(request).await;
        created
            .map(drop)
            .with_context(|| format!("create the network {name}"))
    }

    /// Puts a container into a network under a further name.
    pub(crate) async fn join(&self, id: &str, network: &str, alias: &str) -> anyhow::Result<()> {
        let request = NetworkConnectRequest {
            container: id.to_owned(),
            endpoint_config: Some(EndpointSettings {
                aliases: Some(vec![alias.to_owned()]),
                ..Default::default()
            }),
        };
        let joined = self.0.connect_network(network, request).await;
        joined.with_context(|| format!("join the network {network}"))
    }

    /// Removes a container at once, with its anonymous volumes; one that is gone already is no error.
    pub(crate) async fn remove_container(&self, id: &str) -> anyhow::Result<()> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true);
        match self.0.remove_container(id, Some(options.build())).await {
            Err(error) if !is_gone(&error) => Err(error).context("remove a container"),
            _ => Ok(()),
        }
    }

    /// Removes a container that testcontainers started.
    pub(crate) async fn dispose<I: Image>(&self, it: ContainerAsync<I>) -> anyhow::Result<()> {
        let id = it.id().to_owned();
        match it.rm().await {
            Ok(()) => Ok(()),
            // This one succeeds when the container is gone.
            Err(_) => self.remove_container(&id).await,
        }
    }

    /// Removes a network; one that is gone already is no error.
    pub(crate) async fn remove_network(&self, network: &str) -> anyhow::Result<()> {
        match self.0.remove_network(network).await {
            Err(error) if !is_gone(&error) => Err(error).context("remove a network"),
            _ => Ok(()),
        }
    }
}

fn is_gone(error: &Error) -> bool {
    // 409: another removal of the same container is under way.
    let Error::DockerResponseServerError { status_code, .. } = error else {
        return false;
    };
    matches!(status_code, 404 | 409)
}

/// Runs the `docker` program to its end; what the program in a container returns is the exit code.
pub(crate) async fn run(args: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let Ok(ended) = timeout(TIME_LIMIT, command.output()).await else {
        bail!("docker {args:?}: no end within {TIME_LIMIT:?}");
    };
    let ended = ended.context("run docker")?;
    Ok(Output {
        code: ended.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&ended.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
    })
}

/// The same, where another exit code than 0 is an error.
pub(crate) async fn must(args: &[&str]) -> anyhow::Result<Output> {
    let output = run(args).await?;
    let Output { code, stderr, .. } = &output;
    ensure!(*code == 0, "docker {args:?} ended with {code}: {stderr}");
    Ok(output)
}

/// The longest program in a container imports an image into a busy node.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// The `docker` program that can use BuildKit.
///
/// Debian's can; a newer client that comes first on the PATH without its buildx plugin cannot.
pub(crate) fn program() -> PathBuf {
    let debian = Path::new("/usr/bin/docker");
    if debian.exists() {
        debian.to_owned()
    } else {
        PathBuf::from("docker")
    }
}
