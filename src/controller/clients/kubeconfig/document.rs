//! Parsing of a kubeconfig into kube's type, within limits.
//!
//! Invariant: anchors and aliases are rejected, since a small document with them can become very large. Duplicate
//! keys and a second document are rejected, too. kube's loader is not used, since it reads files and runs programs
//! that the document names.

use kube::config::{AuthInfo, Cluster, Kubeconfig};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, Options};

use super::KubeconfigError;

const CONTEXT: &str = "current-context";
const CLUSTER: &str = "cluster of the current context";
const USER: &str = "user of the current context";

/// Parses one document. The caller limits its length.
pub(super) fn read(bytes: &[u8]) -> Result<Kubeconfig, KubeconfigError> {
    // Parsed as a JSON tree first: a YAML parser for each of these types would be most of this module's code.
    let tree: Value = serde_saphyr::from_slice_with_options(bytes, options())
        // The parser's error quotes the document, so only the position is used.
        .map_err(|error| {
            let line = error.location().map_or(1, |it| it.line());
            KubeconfigError::Unreadable(line)
        })?;
    let document: Kubeconfig =
        serde_json::from_value(tree).map_err(|_quoting| KubeconfigError::Malformed)?;
    let kind = document.kind.as_deref().unwrap_or_default();
    let version = document.api_version.as_deref().unwrap_or_default();
    if !matches!(kind, "" | "Config") || !matches!(version, "" | "v1") {
        return Err(KubeconfigError::Foreign);
    }
    Ok(document)
}

/// Returns the cluster and the user of the current context.
pub(super) fn current(document: Kubeconfig) -> Result<(Cluster, AuthInfo), KubeconfigError> {
    let current = document
        .current_context
        .filter(|it| !it.is_empty())
        .ok_or(KubeconfigError::Missing(CONTEXT))?;
    let contexts = document.contexts.into_iter();
    let contexts = contexts.filter(|it| it.name == current);
    let context = only(CONTEXT, contexts.map(|it| it.context))?;
    let clusters = document.clusters.into_iter();
    let clusters = clusters.filter(|it| it.name == context.cluster);
    let cluster = only(CLUSTER, clusters.map(|it| it.cluster))?;
    let name = context.user.unwrap_or_default();
    let users = document.auth_infos.into_iter();
    let users = users.filter(|it| it.name == name);
    let user = only(USER, users.map(|it| it.auth_info))?;
    Ok((cluster, user))
}

/// Returns the only entry with a name. With two entries of the same name, the result would depend on the parser.
fn only<T>(
    entry: &'static str,
    mut found: impl Iterator<Item = Option<T>>,
) -> Result<T, KubeconfigError> {
    let first = found.next().flatten();
    if found.next().is_some() {
        return Err(KubeconfigError::Duplicate(entry));
    }
    first.ok_or(KubeconfigError::Missing(entry))
}

/// Returns limits far above any real kubeconfig (about fifty nodes per context, five levels), and low enough to be cheap.
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
