//! Whether a Pod of a namespace uses the pull Secret: asked once before a copy that is no longer needed is removed.
//!
//! One paged LIST of the namespace's unfinished Pods; it ends with the first Pod that uses the Secret. Invariant: of a
//! Pod only its name, its annotations and the names of its pull Secrets are parsed, and nothing outlives the page.

use std::collections::BTreeMap;

use api::names::MARKER;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Resource as _};
use serde::Deserialize;

use super::apply::{ApplyError, unsendable};

/// Pods of one page. A Pod is some kilobytes, and as many namespaces are asked about as writes are in flight.
const PAGE: u32 = 100;

/// A finished Pod pulls nothing any more.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    items: Option<Vec<PodView>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    token: Option<String>,
}

#[derive(Deserialize)]
struct PodView {
    #[serde(default)]
    metadata: PodMetadata,
    #[serde(default)]
    spec: PodSpec,
}

#[derive(Default, Deserialize)]
struct PodMetadata {
    name: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    image_pull_secrets: Option<Vec<SecretName>>,
}

#[derive(Deserialize)]
struct SecretName {
    name: Option<String>,
}

impl PodView {
    /// A Pod that the webhook changed counts whatever it names: in doubt the copy stays.
    fn uses(&self, secret: &str) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let entries = self.spec.image_pull_secrets.iter().flatten();
        annotations.is_some_and(|it| it.contains_key(MARKER))
            || entries
                .filter_map(|entry| entry.name.as_deref())
                .any(|name| name == secret)
    }
}

/// The name of an unfinished Pod that uses the Secret; `None` if there is none.
///
/// # Errors
/// A page could not be read. Nothing is known then of any Pod.
pub(super) async fn user_of(
    client: &Client,
    namespace: &str,
    secret: &str,
) -> Result<Option<String>, ApplyError> {
    let mut parameters = ListParams::default().fields(UNFINISHED).limit(PAGE);
    loop {
        let request = Request::new(Pod::url_path(&(), Some(namespace)))
            .list(&parameters)
            .map_err(unsendable)?;
        let text = client.request_text(request).await.map_err(ApplyError::of)?;
        let page: Page = serde_json::from_str(&text).map_err(|_| ApplyError::Unreadable)?;
        let mut pods = page.items.into_iter().flatten();
        if let Some(pod) = pods.find(|pod| pod.uses(secret)) {
            return Ok(Some(pod.metadata.name.unwrap_or_default()));
        }
        match page.metadata.token.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(None),
        }
    }
}
