//! What a request to an API server is, read from its HTTP form.
//!
//! Invariant: total, and bounded: the resource is the plural (and subresource) in the path and
//! never holds a name, a namespace or a group.

use http::header::CONTENT_TYPE;
use http::{Method, Request};

/// The media type of server-side apply.
const APPLY: &[u8] = b"application/apply-patch+yaml";
/// Longer than any plural with its subresource that we ask for.
const LONGEST_RESOURCE: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The verb as RBAC has it, but with `apply` apart from `patch`.
    pub(super) verb: &'static str,
    /// `pods`, `pods/eviction`; `discovery` and `other` for what is no resource.
    pub(super) resource: String,
    /// Whether the answer's body goes on for ever by design.
    pub(super) streams: bool,
}

impl Call {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let target = Target::of(request.uri().path());
        let asks = |wanted: &[&str]| {
            let query = request.uri().query().unwrap_or_default();
            query.split('&').any(|pair| wanted.contains(&pair))
        };
        let watches = asks(&["watch=true", "watch=1"]);
        let verb = match *request.method() {
            Method::GET | Method::HEAD if watches => "watch",
            Method::GET | Method::HEAD if target.is_collection => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH if is_apply(request) => "apply",
            Method::PATCH => "patch",
            Method::DELETE if target.is_collection => "deletecollection",
            Method::DELETE => "delete",
            _ => "other",
        };
        Self {
            verb,
            resource: target.resource,
            streams: watches || asks(&["follow=true"]),
        }
    }
}

fn is_apply<B>(request: &Request<B>) -> bool {
    request
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|media_type| media_type.as_bytes().starts_with(APPLY))
}

struct Target {
    resource: String,
    is_collection: bool,
}

impl Target {
    fn of(path: &str) -> Self {
        let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match segments.as_slice() {
            ["api" | "apis"] | ["api" | "apis", _] | ["apis", _, _] => Self::outside("discovery"),
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => Self::in_group(rest),
            _ => Self::outside("other"),
        }
    }

    fn in_group(segments: &[&str]) -> Self {
        match segments {
            // These two are subresources of a namespace and not what lies in it.
            ["namespaces", _, sub @ ("status" | "finalize")] => {
                Self::named(&format!("namespaces/{sub}"))
            }
            ["namespaces", _, rest @ ..] if !rest.is_empty() => Self::in_namespace(rest),
            _ => Self::in_namespace(segments),
        }
    }

    fn in_namespace(segments: &[&str]) -> Self {
        match segments {
            [plural] => Self {
                is_collection: true,
                ..Self::named(plural)
            },
            [plural, _name] => Self::named(plural),
            [plural, _name, sub, ..] => Self::named(&format!("{plural}/{sub}")),
            [] => Self::outside("other"),
        }
    }

    fn named(resource: &str) -> Self {
        let expected = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'/');
        if resource.len() > LONGEST_RESOURCE || !resource.bytes().all(expected) {
            return Self::outside("other");
        }
        Self::outside(resource)
    }

    fn outside(resource: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            is_collection: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::all_namespaces("GET", "/api/v1/pods?limit=500", "list", "pods")]
    #[case::one_namespace("GET", "/api/v1/namespaces/a/secrets", "list", "secrets")]
    #[case::group(
        "GET",
        "/apis/apps/v1/namespaces/a/deployments/b",
        "get",
        "deployments"
    )]
    #[case::cluster_scoped(
        "GET",
        "/apis/certificates.k8s.io/v1/clustertrustbundles/x",
        "get",
        "clustertrustbundles"
    )]
    #[case::namespaces("GET", "/api/v1/namespaces", "list", "namespaces")]
    #[case::namespace("GET", "/api/v1/namespaces/a", "get", "namespaces")]
    #[case::namespace_status("PUT", "/api/v1/namespaces/a/status", "update", "namespaces/status")]
    #[case::watch(
        "GET",
        "/api/v1/configmaps?&watch=true&resourceVersion=1",
        "watch",
        "configmaps"
    )]
    #[case::eviction(
        "POST",
        "/api/v1/namespaces/a/pods/b/eviction",
        "create",
        "pods/eviction"
    )]
    #[case::update(
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
        "update",
        "leases"
    )]
    #[case::patch(
        "PATCH",
        "/api/v1/namespaces/a/secrets/b?fieldManager=watch",
        "patch",
        "secrets"
    )]
    #[case::delete("DELETE", "/api/v1/namespaces/a/secrets/b", "delete", "secrets")]
    #[case::delete_many(
        "DELETE",
        "/api/v1/namespaces/a/secrets",
        "deletecollection",
        "secrets"
    )]
    #[case::discovery("GET", "/apis/certificates.k8s.io/v1", "get", "discovery")]
    #[case::core_discovery("GET", "/api/v1", "get", "discovery")]
    #[case::version("GET", "/version", "get", "other")]
    #[case::root("GET", "/", "get", "other")]
    #[case::strange_plural("GET", "/api/v1/%7Bevil%7D", "list", "other")]
    #[case::strange_method("OPTIONS", "/api/v1/pods", "other", "pods")]
    fn verb_and_resource(
        #[case] method: &str,
        #[case] uri: &str,
        #[case] verb: &str,
        #[case] resource: &str,
    ) {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        let call = Call::of(&request);
        assert_eq!((call.verb, call.resource.as_str()), (verb, resource));
        assert_eq!(call.streams, verb == "watch");
    }

    #[test]
    fn apply_is_told_from_other_patches_by_its_media_type() {
        let request = Request::patch("/api/v1/namespaces/a/secrets/b")
            .header(CONTENT_TYPE, "application/apply-patch+yaml")
            .body(())
            .unwrap();
        assert_eq!(Call::of(&request).verb, "apply");
    }

    #[test]
    fn followed_logs_stream() {
        let request = Request::get("/api/v1/namespaces/a/pods/b/log?follow=true")
            .body(())
            .unwrap();
        let call = Call::of(&request);
        assert!(call.streams);
        assert_eq!((call.verb, call.resource.as_str()), ("get", "pods/log"));
    }

    #[test]
    fn an_endless_plural_is_not_a_label() {
        let request = Request::get(format!("/api/v1/{}", "a".repeat(64)))
            .body(())
            .unwrap();
        assert_eq!(Call::of(&request).resource, "other");
    }
}
