//! The form of a kubeconfig, which is kube's type, and its reading within a budget.
//!
//! Invariant: anchors and aliases are rejected (no kubeconfig needs them, and they are how small YAML becomes large), and so
//! are duplicate keys and a second document. kube's loader is not used: it would read files and run programs that the document
//! names.

use kube::config::{AuthInfo, Cluster, Kubeconfig};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, Options};

use super::{Entry, KubeconfigError};

/// Reads one document. Its length is bounded by the caller.
pub(super) fn read(bytes: &[u8]) -> Result<Kubeconfig, KubeconfigError> {
    // A tree first, as elsewhere: a YAML reader of its own for each of these types would be most of this module.
    let tree: Value = serde_saphyr::from_slice_with_options(bytes, options())
        // The reader's error quotes the document, so only the place is taken from it.
        .map_err(|error| KubeconfigError::Unreadable {
            line: error.location().map_or(0, |it| it.line()),
        })?;
    let document: Kubeconfig =
        serde_json::from_value(tree).map_err(|_quoting| KubeconfigError::Unreadable { line: 0 })?;
    let kind = document.kind.as_deref().unwrap_or_default();
    let version = document.api_version.as_deref().unwrap_or_default();
    if !matches!(kind, "" | "Config") || !matches!(version, "" | "v1") {
        return Err(KubeconfigError::Foreign);
    }
    Ok(document)
}

/// The cluster and the user of the current context.
pub(super) fn current(document: Kubeconfig) -> Result<(Cluster, AuthInfo), KubeconfigError> {
    let current = document
        .current_context
        .filter(|it| !it.is_empty())
        .ok_or(KubeconfigError::Missing(Entry::Context))?;
    let contexts = document.contexts.into_iter();
    let contexts = contexts.filter(|it| it.name == current);
    let context = only(Entry::Context, contexts.map(|it| it.context))?;
    let clusters = document.clusters.into_iter();
    let clusters = clusters.filter(|it| it.name == context.cluster);
    let cluster = only(Entry::Cluster, clusters.map(|it| it.cluster))?;
    let name = context.user.unwrap_or_default();
    let users = document.auth_infos.into_iter();
    let users = users.filter(|it| it.name == name);
    let user = only(Entry::User, users.map(|it| it.auth_info))?;
    Ok((cluster, user))
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
