//! The form of a kubeconfig, and its reading within a budget.
//!
//! Invariant: anchors and aliases are refused (no kubeconfig needs them, and they are how small YAML grows large), and
//! so are duplicate keys and a second document. Fields that mean nothing to us do not outlive the reading.

use std::ops::Deref;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, Options};
use zeroize::Zeroizing;

use super::{Entry, KubeconfigError};

/// The document as written; `null` and absent are the same.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Document {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    contexts: Option<Vec<NamedContext>>,
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Deserialize)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
}

/// `clusters[].cluster`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) tls_server_name: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) proxy_url: Option<String>,
}

/// `users[].user`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) token: Option<Confidential>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    pub(super) client_key_data: Option<Confidential>,
    pub(super) username: Option<String>,
    pub(super) password: Option<Confidential>,
    pub(super) exec: Option<IgnoredAny>,
    pub(super) auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    pub(super) impersonate: Option<String>,
    #[serde(rename = "as-uid")]
    pub(super) impersonate_uid: Option<String>,
    #[serde(rename = "as-groups")]
    pub(super) impersonate_groups: Option<IgnoredAny>,
    #[serde(rename = "as-user-extra")]
    pub(super) impersonate_extra: Option<IgnoredAny>,
}

/// A text that is zeroized when it is dropped.
#[derive(Deserialize)]
#[serde(from = "String")]
pub(super) struct Confidential(Zeroizing<String>);

impl From<String> for Confidential {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Deref for Confidential {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Confidential {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Document {
    /// Reads one document. Its length is bounded by the caller.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, KubeconfigError> {
        // A tree first, as elsewhere: a YAML reader of its own for each of the types above would be most of this module.
        let tree: Value = serde_saphyr::from_slice_with_options(bytes, options())
            // The reader's error quotes the document, so only the place is taken from it.
            .map_err(|error| KubeconfigError::Unreadable {
                line: error.location().map_or(0, |it| it.line()),
            })?;
        let document: Self = serde_json::from_value(tree)
            .map_err(|_quoting| KubeconfigError::Unreadable { line: 0 })?;
        let kind = document.kind.as_deref().unwrap_or_default();
        let version = document.api_version.as_deref().unwrap_or_default();
        if !matches!(kind, "" | "Config") || !matches!(version, "" | "v1") {
            return Err(KubeconfigError::Foreign);
        }
        Ok(document)
    }

    /// The cluster and the user of the current context.
    pub(super) fn current(self) -> Result<(Cluster, User), KubeconfigError> {
        let current = self
            .current_context
            .filter(|it| !it.is_empty())
            .ok_or(KubeconfigError::Missing(Entry::Context))?;
        let contexts = self.contexts.into_iter().flatten();
        let context = only(
            Entry::Context,
            contexts
                .filter(|it| it.name == current)
                .map(|it| it.context),
        )?;
        let cluster_name = context.cluster.unwrap_or_default();
        let clusters = self.clusters.into_iter().flatten();
        let cluster = only(
            Entry::Cluster,
            clusters
                .filter(|it| it.name == cluster_name)
                .map(|it| it.cluster),
        )?;
        let user_name = context.user.unwrap_or_default();
        let users = self.users.into_iter().flatten();
        let user = only(
            Entry::User,
            users.filter(|it| it.name == user_name).map(|it| it.user),
        )?;
        Ok((cluster, user))
    }
}

/// The one entry of that name: with two, which one counts would depend on the reader.
fn only<T>(entry: Entry, mut found: impl Iterator<Item = Option<T>>) -> Result<T, KubeconfigError> {
    let first = found.next().flatten();
    if found.next().is_some() {
        return Err(KubeconfigError::Duplicate(entry));
    }
    first.ok_or(KubeconfigError::Missing(entry))
}

/// Far above any real kubeconfig (some fifty nodes a context, five levels), far below what costs anything.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_depth: 16,
            max_events: 100_000,
            max_nodes: 50_000,
            max_documents: 1,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        emit_comments: false,
        with_snippet: false,
    }
}
