//! Pushing an image archive by the distribution API: blobs, then the manifest.
//!
//! Invariant: the very bytes of the archive's configuration and layers arrive, so the image's id is the same in the
//! registry and in a node that got the archive.

use std::net::SocketAddr;

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::json;

use super::{Identity, NAME, RegistryError};
use crate::images::{ImageTar, digest};

/// The registry as the host sees it: its real name, a port on loopback, trust in its authority alone.
#[derive(Debug)]
pub(super) struct RegistryClient {
    client: Client,
    origin: String,
}

impl RegistryClient {
    pub(super) fn new(identity: &Identity, port: u16) -> Result<Self, RegistryError> {
        let http = |source| RegistryError::Http {
            what: "make a client",
            source,
        };
        let ca = reqwest::Certificate::from_pem(identity.ca_pem.as_bytes()).map_err(http)?;
        let loopback = SocketAddr::from(([127, 0, 0, 1], port));
        let client = Client::builder()
            .tls_certs_only([ca])
            .resolve(NAME, loopback)
            .build()
            .map_err(http)?;
        Ok(Self {
            client,
            origin: format!("https://{NAME}:{port}"),
        })
    }

    pub(super) async fn status_without_credentials(&self) -> Result<StatusCode, RegistryError> {
        let asked = self.client.get(format!("{}/v2/", self.origin)).send().await;
        asked
            .map(|answer| answer.status())
            .map_err(|source| RegistryError::Http {
                what: "ask for its version",
                source,
            })
    }

    pub(super) async fn push(
        &self,
        identity: &Identity,
        image: &ImageTar,
        (repository, tag): (&str, &str),
    ) -> Result<(), RegistryError> {
        let target = Target {
            client: &self.client,
            identity,
            origin: &self.origin,
            base: format!("{}/v2/{repository}", self.origin),
        };
        let contents = image.contents().map_err(RegistryError::Image)?;
        let mut layers = Vec::new();
        for layer in contents.layers {
            layers.push(descriptor(LAYER, &layer));
            target.blob(layer).await?;
        }
        let config = descriptor(CONFIG, &contents.config);
        target.blob(contents.config).await?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
        });
        target.manifest(tag, manifest.to_string()).await
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> serde_json::Value {
    json!({ "mediaType": media_type, "size": bytes.len(), "digest": digest(bytes) })
}

/// A repository of the registry.
struct Target<'a> {
    client: &'a Client,
    identity: &'a Identity,
    origin: &'a str,
    base: String,
}

impl Target<'_> {
    async fn blob(&self, bytes: Vec<u8>) -> Result<(), RegistryError> {
        let digest = digest(&bytes);
        let known = self
            .send(
                "look for a blob",
                self.client.head(format!("{}/blobs/{digest}", self.base)),
            )
            .await?;
        if known.status() == StatusCode::OK {
            return Ok(());
        }
        let begin = self.client.post(format!("{}/blobs/uploads/", self.base));
        let accepted = expect(
            "begin an upload",
            StatusCode::ACCEPTED,
            self.send("begin an upload", begin).await?,
        )
        .await?;
        let location = accepted
            .headers()
            .get(http::header::LOCATION)
            .and_then(|value| value.to_str().ok());
        let location = location.unwrap_or_default().to_owned();
        // The registry may answer with a path or with a whole address.
        let location = if location.starts_with('/') {
            format!("{}{location}", self.origin)
        } else {
            location
        };
        let separator = if location.contains('?') { '&' } else { '?' };
        let end = self
            .client
            .put(format!("{location}{separator}digest={digest}"))
            .header(http::header::CONTENT_TYPE, "application/octet-stream")
            .body(bytes);
        let ended = self.send("upload a blob", end).await?;
        expect("upload a blob", StatusCode::CREATED, ended)
            .await
            .map(drop)
    }

    async fn manifest(&self, tag: &str, manifest: String) -> Result<(), RegistryError> {
        let put = self
            .client
            .put(format!("{}/manifests/{tag}", self.base))
            .header(http::header::CONTENT_TYPE, MANIFEST)
            .body(manifest);
        let answer = self.send("put a manifest", put).await?;
        expect("put a manifest", StatusCode::CREATED, answer)
            .await
            .map(drop)
    }

    async fn send(
        &self,
        what: &'static str,
        request: RequestBuilder,
    ) -> Result<Response, RegistryError> {
        request
            .basic_auth(&self.identity.user, Some(&self.identity.password))
            .send()
            .await
            .map_err(|source| RegistryError::Http { what, source })
    }
}

async fn expect(
    what: &'static str,
    wanted: StatusCode,
    answer: Response,
) -> Result<Response, RegistryError> {
    let status = answer.status();
    if status == wanted {
        return Ok(answer);
    }
    Err(RegistryError::Refused {
        what,
        status,
        body: answer.text().await.unwrap_or_default(),
    })
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
