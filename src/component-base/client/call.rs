//! The resource of a request to an API server, and whether its response is a stream.
//!
//! Invariant: the resource is the bounded plural (with subresource) of the path, never a name, a namespace or a group.

use http::Request;

/// Maximum length of a plural with its subresource, in bytes. A longer one is reported as `other`.
const LONGEST_RESOURCE: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The resource, such as `pods` or `pods/eviction`; `discovery` or `other` for a path without a resource.
    pub(super) resource: String,
    /// Whether the body of the response is an endless stream: a watch, or followed logs.
    pub(super) streams: bool,
}

impl Call {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let endless = ["watch=true", "watch=1", "follow=true"];
        Self {
            resource: resource(request.uri().path()),
            streams: query.split('&').any(|pair| endless.contains(&pair)),
        }
    }
}

fn resource(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let in_group = match segments.as_slice() {
        ["api" | "apis"] | ["api" | "apis", _] | ["apis", _, _] => return "discovery".to_owned(),
        ["api", _, in_group @ ..] | ["apis", _, _, in_group @ ..] => in_group,
        _ => return "other".to_owned(),
    };
    let resource = match in_group {
        // These are subresources of a Namespace, not resources in it.
        ["namespaces", _, sub @ ("status" | "finalize")] => format!("namespaces/{sub}"),
        ["namespaces", _, plural] | ["namespaces", _, plural, _] | [plural] | [plural, _] => {
            (*plural).to_owned()
        }
        ["namespaces", _, plural, _, sub, ..] | [plural, _, sub, ..] => format!("{plural}/{sub}"),
        [] => return "other".to_owned(),
    };
    let expected = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'/');
    if resource.len() > LONGEST_RESOURCE || !resource.bytes().all(expected) {
        return "other".to_owned();
    }
    resource
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::all_namespaces("/api/v1/pods?limit=500", "pods")]
    #[case::one_namespace("/api/v1/namespaces/a/secrets", "secrets")]
    #[case::group("/apis/apps/v1/namespaces/a/deployments/b", "deployments")]
    #[case::cluster_scoped(
        "/apis/certificates.k8s.io/v1/clustertrustbundles/x",
        "clustertrustbundles"
    )]
    #[case::namespaces("/api/v1/namespaces", "namespaces")]
    #[case::namespace("/api/v1/namespaces/a", "namespaces")]
    #[case::namespace_status("/api/v1/namespaces/a/status", "namespaces/status")]
    #[case::watch("/api/v1/configmaps?&watch=true&resourceVersion=1", "configmaps")]
    #[case::eviction("/api/v1/namespaces/a/pods/b/eviction", "pods/eviction")]
    #[case::update("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "leases")]
    #[case::patch("/api/v1/namespaces/a/secrets/b?fieldManager=watch", "secrets")]
    #[case::delete("/api/v1/namespaces/a/secrets/b", "secrets")]
    #[case::delete_many("/api/v1/namespaces/a/secrets", "secrets")]
    #[case::discovery("/apis/certificates.k8s.io/v1", "discovery")]
    #[case::core_discovery("/api/v1", "discovery")]
    #[case::version("/version", "other")]
    #[case::root("/", "other")]
    #[case::strange_plural("/api/v1/%7Bevil%7D", "other")]
    fn resource_of_a_path_and_whether_it_streams(#[case] uri: &str, #[case] resource: &str) {
        let request = Request::get(uri).body(()).unwrap();
        let call = Call::of(&request);
        assert_eq!(call.resource, resource);
        assert_eq!(call.streams, uri.contains("&watch="));
    }

    #[test]
    fn followed_logs_stream() {
        let request = Request::get("/api/v1/namespaces/a/pods/b/log?follow=true")
            .body(())
            .unwrap();
        let call = Call::of(&request);
        assert!(call.streams);
        assert_eq!(call.resource, "pods/log");
    }

    #[test]
    fn an_endless_plural_is_not_a_label() {
        let request = Request::get(format!("/api/v1/{}", "a".repeat(64)))
            .body(())
            .unwrap();
        assert_eq!(Call::of(&request).resource, "other");
    }
}
