//! The requests that a run may send to a cluster. One list defines the permissions that are checked, the output of `--dry-run`,
//! and the requests that the client permits.
//!
//! Invariant: a request that is not in the list is not sent. Except for access reviews, every write concerns a namespace that
//! the run creates. With `--install` it can also be an object of the installation, which did not exist before.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use http::{Method, Request};
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use testkit::json::{name, text};

/// Verb of a request, in the terms of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Get,
    List,
    Create,
    Patch,
    Delete,
}

/// A request that a run may send.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allowed {
    verb: Verb,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    /// Purpose of the request.
    why: String,
}

impl Verb {
    /// Parses a verb. An unknown word is `get`, which changes nothing.
    fn of(word: &str) -> Self {
        match word {
            "list" => Self::List,
            "create" => Self::Create,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            _ => Self::Get,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Get | Self::List => Method::GET,
            Self::Create => Method::POST,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}

impl Allowed {
    /// Parses a request in the format `VERB KIND[/SUBRESOURCE] [NAMESPACE/][NAME] # WHY`.
    ///
    /// KIND is `plural` or `plural.version.group`, or the path of a page of the API server. A namespace or a name `{…}` matches
    /// any value.
    pub fn new(text: &str) -> Self {
        let (request, why) = text.split_once(" # ").unwrap_or((text, ""));
        let mut words = request.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (verb, kind, place) = (Verb::of(word()), word(), word());
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        let (kind, subresource) = match kind.rsplit_once('/') {
            None | Some(("", _)) => (kind, ""),
            Some(parts) => parts,
        };
        let mut parts = kind.splitn(3, '.');
        let mut part = |absent: &str| parts.next().unwrap_or(absent).to_owned();
        Self {
            verb,
            resource: part(""),
            version: part("v1"),
            group: part(""),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            why: why.to_owned(),
        }
    }

    /// Returns the path without a query.
    pub fn path(&self) -> String {
        if self.is_object_free() {
            return self.resource.clone();
        }
        let (root, group) = match self.group.as_str() {
            "" => ("api", ""),
            group => ("apis", group),
        };
        let (namespaces, namespace) = match self.namespace.as_str() {
            "" => ("", ""),
            namespace => ("namespaces", namespace),
        };
        let (name, sub) = match (self.verb, self.subresource.as_str()) {
            // The name of a new object is in the body.
            (Verb::Create, "") => ("", ""),
            (_, "proxy") => (self.name.as_str(), "proxy/metrics"),
            (_, sub) => (self.name.as_str(), sub),
        };
        let (version, resource) = (self.version.as_str(), self.resource.as_str());
        let object = [namespaces, namespace, resource, name, sub];
        let parts = [root, group, version].into_iter().chain(object);
        let parts: Vec<&str> = parts.filter(|it| !it.is_empty()).collect();
        format!("/{}", parts.join("/"))
    }

    /// Whether the request reads a page of the API server and not an object.
    fn is_object_free(&self) -> bool {
        self.resource.starts_with('/')
    }

    /// Whether a request matches this entry.
    pub(crate) fn allows(&self, method: &Method, path: &str) -> bool {
        let own = self.path();
        let mut asked = path.split('/');
        self.verb.method() == *method
            && own.split('/').all(|part| {
                let asked = asked.next();
                part == asked.unwrap_or_default() || (part.starts_with('{') && asked.is_some())
            })
            && asked.next().is_none()
    }

    /// Returns the permission in the format of the specification of a SelfSubjectAccessReview.
    pub fn right(&self) -> Value {
        let verb = self.verb.word();
        if self.is_object_free() {
            return json!({ "nonResourceAttributes": { "verb": verb, "path": self.resource } });
        }
        json!({ "resourceAttributes": {
            "verb": verb, "group": self.group, "version": self.version, "resource": self.resource,
            "subresource": self.subresource, "namespace": self.namespace, "name": self.granted_name(),
        } })
    }

    /// Returns the name to which the permission is restricted; empty for all.
    fn granted_name(&self) -> &str {
        let is_any = self.name.starts_with('{') || self.verb == Verb::Create;
        if is_any { "" } else { &self.name }
    }

    /// Returns the permission in the terms of an RBAC rule, so that an administrator can grant it.
    pub fn shown_right(&self) -> String {
        if self.is_object_free() {
            return format!("{} nonResourceURLs {}", self.verb.word(), self.resource);
        }
        let after = |separator: char, text: &str| match text {
            "" => String::new(),
            text => format!("{separator}{text}"),
        };
        let (sub, group) = (after('/', &self.subresource), after('.', &self.group));
        let place = match self.namespace.as_str() {
            "" => "cluster-wide".to_owned(),
            // The namespace does not exist yet, and the next run uses another name.
            own if own.starts_with(OWN_NAMESPACES) => "in the namespaces of a run".to_owned(),
            namespace => format!("in namespace {namespace}"),
        };
        let name = self.granted_name();
        let is_own = [name, &self.namespace]
            .iter()
            .any(|it| it.starts_with(OWN_NAMESPACES));
        let name = if name.is_empty() || is_own {
            String::new()
        } else {
            format!(" {name:?}")
        };
        let verb = self.verb.word();
        format!("{verb} {}{sub}{group}{name} {place}", self.resource)
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<6} {}  # {}",
            self.verb.method().as_str(),
            self.path(),
            self.why
        )
    }
}

/// Returns the kind of an object in the format of the list. The plural follows from a rule, without a request to the cluster.
pub(crate) fn kind(object: &Value) -> String {
    let version = text(&object["apiVersion"]);
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, text(&object["kind"]));
    format!("{}.{version}.{group}", ApiResource::from_gvk(&gvk).plural)
}

/// Returns an object in the format of the list.
pub(crate) fn words(object: &Value) -> String {
    let namespace = text(&object["metadata"]["namespace"]);
    format!("{} {namespace}/{}", kind(object), name(object))
}

/// Returns the path of objects: `KIND [NAMESPACE/][NAME]`, as in the list.
pub(crate) fn path(objects: &str) -> String {
    Allowed::new(&format!("get {objects}")).path()
}

/// Returns the path of the collection of an object's kind in a namespace, or of cluster scope if it is empty.
pub(crate) fn collection(object: &Value, namespace: &str) -> String {
    path(&format!("{} {namespace}/", kind(object)))
}

/// Error for a request that is not in the list. It is a defect of this program; the request was not sent.
#[derive(Debug)]
pub(crate) struct NotAllowed(String);

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not in the list of requests that this run may send (--dry-run)",
            self.0
        )
    }
}

impl std::error::Error for NotAllowed {}

/// Returns a client that sends only the requests of the list.
pub(crate) fn guarded(client: kube::Client, allowed: BTreeSet<Allowed>) -> kube::Client {
    let allowed = Arc::new(allowed);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (method, path) = (request.method(), request.uri().path());
        let is_allowed = allowed.iter().any(|it| it.allows(method, path));
        let refused = (!is_allowed).then(|| NotAllowed(format!("{method} {path}")));
        let client = client.clone();
        async move {
            match refused {
                Some(refused) => Err(Box::<dyn std::error::Error + Send + Sync>::from(refused)),
                None => Ok(client.send(request).await?),
            }
        }
    });
    kube::Client::new(service, "default")
}

/// Prefix of the names of a run's namespaces.
pub(crate) const OWN_NAMESPACES: &str = "conformance-";

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::the_same("get pods n/a", "GET /api/v1/namespaces/n/pods/a", true)]
    #[case::another_name("get pods n/a", "GET /api/v1/namespaces/n/pods/b", false)]
    #[case::another_method("get pods n/a", "DELETE /api/v1/namespaces/n/pods/a", false)]
    #[case::a_list("get pods n/a", "GET /api/v1/namespaces/n/pods", false)]
    #[case::a_subresource("patch pods n/a", "PATCH /api/v1/namespaces/n/pods/a/status", false)]
    #[case::any_name("delete pods n/{pod}", "DELETE /api/v1/namespaces/n/pods/x", true)]
    #[case::no_name("delete pods n/{pod}", "DELETE /api/v1/namespaces/n/pods", false)]
    #[case::another_namespace("create pods n/", "POST /api/v1/namespaces/m/pods", false)]
    fn request_that_is_not_listed_is_refused(
        #[case] line: &str,
        #[case] request: &str,
        #[case] expected: bool,
    ) {
        let (method, path) = request.split_once(' ').unwrap();
        let method: Method = method.parse().unwrap();
        assert_eq!(Allowed::new(line).allows(&method, path), expected);
    }

    #[rstest::rstest]
    #[case::cluster_wide("get nodes a", "/api/v1/nodes/a")]
    #[case::of_a_namespace("list jobs.v1.batch n/", "/apis/batch/v1/namespaces/n/jobs")]
    #[case::new("create pods n/a", "/api/v1/namespaces/n/pods")]
    #[case::exec("create pods/exec n/a", "/api/v1/namespaces/n/pods/a/exec")]
    #[case::metrics("get pods/proxy n/a", "/api/v1/namespaces/n/pods/a/proxy/metrics")]
    fn line_has_a_path(#[case] line: &str, #[case] path: &str) {
        assert_eq!(Allowed::new(line).path(), path);
    }

    #[test]
    fn version_is_a_request_whose_right_is_that_of_a_path() {
        let version = Allowed::new("get /version # why");
        assert_eq!(version.to_string(), "GET    /version  # why");
        assert!(version.allows(&Method::GET, "/version"));
        assert!(!version.allows(&Method::GET, "/version/x"));
        assert!(!version.allows(&Method::POST, "/version"));
        let right = json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}});
        assert_eq!(version.right(), right);
        assert_eq!(version.shown_right(), "get nonResourceURLs /version");
    }

    #[rstest::rstest]
    #[case::one_object("get", "a", "a", "get jobs.batch \"a\" in namespace n")]
    #[case::any_name("get", "{pod}", "", "get jobs.batch in namespace n")]
    #[case::a_new_object("create", "a", "", "create jobs.batch in namespace n")]
    fn right_is_asked_for_an_object_where_its_name_is_known(
        #[case] verb: &str,
        #[case] name: &str,
        #[case] asked: &str,
        #[case] shown: &str,
    ) {
        let allowed = Allowed::new(&format!("{verb} jobs.v1.batch n/{name}"));
        let expected = json!({"resourceAttributes": {
            "verb": verb, "group": "batch", "version": "v1", "resource": "jobs",
            "subresource": "", "namespace": "n", "name": asked,
        }});
        assert_eq!(allowed.right(), expected);
        assert_eq!(allowed.shown_right(), shown);
    }

    #[tokio::test]
    async fn refused_request_does_not_reach_the_server() {
        let server = testkit::apiserver::ApiServer::new();
        let list = BTreeSet::from([Allowed::new("list namespaces")]);
        let client = guarded(server.client(), list);
        let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(client);
        namespaces
            .list(&kube::api::ListParams::default())
            .await
            .unwrap();
        let refused = namespaces
            .delete("default", &kube::api::DeleteParams::default())
            .await;
        let text = format!("{:?}", refused.unwrap_err());
        assert!(text.contains("DELETE /api/v1/namespaces/default"), "{text}");
        assert_eq!(server.requests_of("delete namespaces").len(), 0);
    }
}
