//! Containers and networks as things with labels: found, joined, removed.
//!
//! Invariant: removing what is gone already is no error, so that teardown and sweep may overlap.

use std::collections::HashMap;

use testcontainers::bollard::errors::Error as ApiError;
use testcontainers::bollard::models::{
    EndpointSettings, NetworkConnectRequest, NetworkCreateRequest,
};
use testcontainers::bollard::query_parameters::{
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, RemoveContainerOptionsBuilder,
};
use testcontainers::{ContainerAsync, Image};

use super::{Docker, DockerError};

/// A container or network that one of our runs made.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// Docker's id.
    pub id: String,
    /// Docker's name.
    pub name: String,
    /// All its labels.
    pub labels: HashMap<String, String>,
    /// For containers: whether it runs.
    pub running: bool,
}

impl Docker {
    /// The address of a container in a network.
    ///
    /// # Errors
    /// When the container is not there.
    pub async fn address(
        &self,
        container: &str,
        network: &str,
    ) -> Result<Option<String>, DockerError> {
        let found = self
            .0
            .inspect_container(container, None)
            .await
            .map_err(DockerError::at("inspect a container"))?;
        let networks = found
            .network_settings
            .and_then(|settings| settings.networks);
        Ok(networks
            .and_then(|mut networks| networks.remove(network))
            .and_then(|endpoint| endpoint.ip_address)
            .filter(|address| !address.is_empty()))
    }

    /// Containers that carry the label `key`, stopped ones too.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub async fn containers(&self, key: &str) -> Result<Vec<Labelled>, DockerError> {
        self.list(HashMap::from([("label", vec![key])])).await
    }

    /// Containers in a network that carry the label `key`, stopped ones too.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub async fn containers_in(
        &self,
        network_id: &str,
        key: &str,
    ) -> Result<Vec<Labelled>, DockerError> {
        let filters = [("label", vec![key]), ("network", vec![network_id])];
        self.list(filters.into()).await
    }

    async fn list(&self, filters: HashMap<&str, Vec<&str>>) -> Result<Vec<Labelled>, DockerError> {
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters)
            .build();
        let found = self
            .0
            .list_containers(Some(options))
            .await
            .map_err(DockerError::at("list containers"))?;
        Ok(found
            .into_iter()
            .map(|container| Labelled {
                id: container.id.unwrap_or_default(),
                name: container
                    .names
                    .and_then(|names| {
                        names
                            .first()
                            .map(|name| name.trim_start_matches('/').to_owned())
                    })
                    .unwrap_or_default(),
                labels: container.labels.unwrap_or_default(),
                running: container
                    .state
                    .is_some_and(|state| state.to_string() == "running"),
            })
            .collect())
    }

    /// Networks that carry the label `key`.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub async fn networks(&self, key: &str) -> Result<Vec<Labelled>, DockerError> {
        let filters = HashMap::from([("label", vec![key])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
        let found = self
            .0
            .list_networks(Some(options))
            .await
            .map_err(DockerError::at("list networks"))?;
        Ok(found
            .into_iter()
            .map(|network| Labelled {
                id: network.id.unwrap_or_default(),
                name: network.name.unwrap_or_default(),
                labels: network.labels.unwrap_or_default(),
                running: false,
            })
            .collect())
    }

    /// Makes a bridge network.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub async fn create_network(
        &self,
        name: &str,
        labels: HashMap<String, String>,
    ) -> Result<(), DockerError> {
        let request = NetworkCreateRequest {
            name: name.to_owned(),
            driver: Some("bridge".to_owned()),
            labels: Some(labels),
            ..Default::default()
        };
        let made = self.0.create_network(request).await;
        made.map(drop).map_err(DockerError::at("make a network"))
    }

    /// Makes a bridge network whose bridge has a name. The daemon accepts the name of a bridge once, whoever asks at
    /// the same time; that of a network it accepts several times.
    ///
    /// # Errors
    /// When the daemon refuses, so also when the bridge exists.
    pub async fn create_network_once(
        &self,
        name: &str,
        bridge: &str,
        labels: HashMap<String, String>,
    ) -> Result<(), DockerError> {
        let option = ("com.docker.network.bridge.name", bridge);
        let request = NetworkCreateRequest {
            name: name.to_owned(),
            driver: Some("bridge".to_owned()),
            options: Some(
                [option]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            labels: Some(labels),
            ..Default::default()
        };
        let made = self.0.create_network(request).await;
        made.map(drop).map_err(DockerError::at("make a network"))
    }

    /// Puts a container into a network under further names.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub async fn join(
        &self,
        container: &str,
        network: &str,
        aliases: &[&str],
    ) -> Result<(), DockerError> {
        let request = NetworkConnectRequest {
            container: container.to_owned(),
            endpoint_config: Some(EndpointSettings {
                aliases: Some(aliases.iter().map(|&alias| alias.to_owned()).collect()),
                ..Default::default()
            }),
        };
        self.0
            .connect_network(network, request)
            .await
            .map_err(DockerError::at("join a network"))
    }

    /// Removes a container at once, with its anonymous volumes; one that is gone already is no error.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub async fn remove_container(&self, container: &str) -> Result<(), DockerError> {
        let options = RemoveContainerOptionsBuilder::new()
            .force(true)
            .v(true)
            .build();
        match self.0.remove_container(container, Some(options)).await {
            Err(error) if !is_gone(&error) => Err(DockerError::at("remove a container")(error)),
            _ => Ok(()),
        }
    }

    /// Removes a container that testcontainers started.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub async fn dispose<I: Image>(&self, container: ContainerAsync<I>) -> Result<(), DockerError> {
        let id = container.id().to_owned();
        match container.rm().await {
            Ok(()) => Ok(()),
            // This one succeeds when the container is gone, whatever the first removal stumbled over.
            Err(_) => self.remove_container(&id).await,
        }
    }

    /// Removes a network; one that is gone already is no error.
    ///
    /// # Errors
    /// When a container is still in it.
    pub async fn remove_network(&self, network: &str) -> Result<(), DockerError> {
        match self.0.remove_network(network).await {
            Err(error) if !is_gone(&error) => Err(DockerError::at("remove a network")(error)),
            _ => Ok(()),
        }
    }
}

fn is_gone(error: &ApiError) -> bool {
    // 409: another removal of the same container is under way.
    matches!(
        error,
        ApiError::DockerResponseServerError {
            status_code: 404 | 409,
            ..
        }
    )
}
