//! The requests that a run may send to a cluster: one list, from which the rights are asked, `--dry-run` is printed, and
//! by which the client refuses everything else.
//!
//! Invariant: a request that is not in the list is not sent, and every write is one to a namespace that the run creates (or,
//! with `--install`, of an object of the installation, whose absence was checked before).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use http::{Method, Request};
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

/// What is done to an object, in the words of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read the objects of a kind.
    List,
    /// Create an object.
    Create,
    /// Change an object.
    Patch,
    /// Delete an object.
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
    /// What it is for.
    why: String,
}

impl Verb {
    fn method(self) -> Method {
        match self {
            Self::Get | Self::List => Method::GET,
            Self::Create => Method::POST,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
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
}

impl Allowed {
    /// A request for objects of cluster scope; `kind` is `plural` or `plural.version.group`, or a path that leads to no object.
    pub fn new(verb: Verb, kind: &str, why: &str) -> Self {
        let mut parts = kind.splitn(3, '.');
        let mut part = || parts.next().map(str::to_owned);
        let resource = part().unwrap_or_default();
        Self {
            verb,
            resource,
            version: part().unwrap_or_else(|| "v1".to_owned()),
            group: part().unwrap_or_default(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            why: why.to_owned(),
        }
    }

    /// The same for an object as a manifest has it.
    pub fn of(verb: Verb, object: &Value, why: &str) -> Self {
        let resource = resource(object);
        let kind = format!(
            "{}.{}.{}",
            resource.plural, resource.version, resource.group
        );
        Self::new(verb, &kind, why)
    }

    /// The same in a namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self { namespace, ..self }
    }

    /// The same for one object; `{…}` stands for any name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// The same for a subresource.
    #[must_use]
    pub fn sub(self, subresource: &str) -> Self {
        let subresource = subresource.to_owned();
        Self {
            subresource,
            ..self
        }
    }

    /// The path, without a query.
    pub fn path(&self) -> String {
        if self.is_object_free() {
            return self.resource.clone();
        }
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        let mut add = |parts: &[&str]| {
            for part in parts {
                path.push('/');
                path.push_str(part);
            }
        };
        if !self.namespace.is_empty() {
            add(&["namespaces", &self.namespace]);
        }
        add(&[&self.resource]);
        // The name of a new object is in the body.
        if !self.name.is_empty() && (self.verb != Verb::Create || !self.subresource.is_empty()) {
            add(&[&self.name]);
        }
        match self.subresource.as_str() {
            "" => {}
            "proxy" => add(&["proxy", "metrics"]),
            other => add(&[other]),
        }
        path
    }

    /// Whether it reads no object, but a page of the API server.
    fn is_object_free(&self) -> bool {
        self.resource.starts_with('/')
    }

    /// Whether it is this request.
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

    /// The right, as the specification of a SelfSubjectAccessReview asks for it.
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

    /// The name that a right is restricted to; empty for all.
    fn granted_name(&self) -> &str {
        let is_any = self.name.starts_with('{') || self.verb == Verb::Create;
        if is_any { "" } else { &self.name }
    }

    /// The right in the words of an RBAC rule, as a user can be given it.
    pub fn shown_right(&self) -> String {
        if self.is_object_free() {
            return format!("{} nonResourceURLs {}", self.verb.word(), self.resource);
        }
        let group = if self.group.is_empty() {
            String::new()
        } else {
            format!(".{}", self.group)
        };
        let sub = if self.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", self.subresource)
        };
        let place = match self.namespace.as_str() {
            "" => "cluster-wide".to_owned(),
            // It does not exist yet, and the next run has another name for it.
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

/// Group, version and plural of an object's kind. The plural is made by rule: nothing is asked of the cluster.
pub(crate) fn resource(object: &Value) -> ApiResource {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")))
}

/// A request that is not in the list. It is a defect of this program, and the request was not sent.
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

/// The client, which sends what the list has and nothing else.
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

/// What the names of the namespaces of a run begin with.
pub(crate) const OWN_NAMESPACES: &str = "conformance-";

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::the_same(
        Verb::Get,
        "configmaps/a",
        Method::GET,
        "/api/v1/namespaces/n/configmaps/a",
        true
    )]
    #[case::another_name(
        Verb::Get,
        "configmaps/a",
        Method::GET,
        "/api/v1/namespaces/n/configmaps/b",
        false
    )]
    #[case::another_method(
        Verb::Get,
        "configmaps/a",
        Method::DELETE,
        "/api/v1/namespaces/n/configmaps/a",
        false
    )]
    #[case::a_list(
        Verb::Get,
        "configmaps/a",
        Method::GET,
        "/api/v1/namespaces/n/configmaps",
        false
    )]
    #[case::a_subresource(
        Verb::Patch,
        "pods/a",
        Method::PATCH,
        "/api/v1/namespaces/n/pods/a/status",
        false
    )]
    #[case::any_name(
        Verb::Delete,
        "pods/{pod}",
        Method::DELETE,
        "/api/v1/namespaces/n/pods/x",
        true
    )]
    #[case::no_name(
        Verb::Delete,
        "pods/{pod}",
        Method::DELETE,
        "/api/v1/namespaces/n/pods",
        false
    )]
    #[case::another_namespace(
        Verb::Create,
        "pods/",
        Method::POST,
        "/api/v1/namespaces/m/pods",
        false
    )]
    fn request_that_is_not_listed_is_refused(
        #[case] verb: Verb,
        #[case] object: &str,
        #[case] method: Method,
        #[case] path: &str,
        #[case] expected: bool,
    ) {
        let (kind, name) = object.split_once('/').unwrap();
        let allowed = Allowed::new(verb, kind, "").within("n").named(name);
        assert_eq!(allowed.allows(&method, path), expected);
    }

    #[test]
    fn version_is_a_request_whose_right_is_that_of_a_path() {
        let version = Allowed::new(Verb::Get, "/version", "why");
        assert_eq!(version.to_string(), "GET    /version  # why");
        assert!(version.allows(&Method::GET, "/version"));
        assert!(!version.allows(&Method::GET, "/version/x"));
        assert!(!version.allows(&Method::POST, "/version"));
        let right = json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}});
        assert_eq!(version.right(), right);
        assert_eq!(version.shown_right(), "get nonResourceURLs /version");
    }

    #[rstest::rstest]
    #[case::one_object(Verb::Get, "a", "a", "get jobs.batch \"a\" in namespace n")]
    #[case::any_name(Verb::Get, "{pod}", "", "get jobs.batch in namespace n")]
    #[case::a_new_object(Verb::Create, "a", "", "create jobs.batch in namespace n")]
    fn right_is_asked_for_an_object_where_its_name_is_known(
        #[case] verb: Verb,
        #[case] name: &str,
        #[case] asked: &str,
        #[case] shown: &str,
    ) {
        let allowed = Allowed::new(verb, "jobs.v1.batch", "")
            .within("n")
            .named(name);
        let expected = json!({"resourceAttributes": {
            "verb": verb.word(), "group": "batch", "version": "v1", "resource": "jobs",
            "subresource": "", "namespace": "n", "name": asked,
        }});
        assert_eq!(allowed.right(), expected);
        assert_eq!(allowed.shown_right(), shown);
    }

    #[tokio::test]
    async fn refused_request_does_not_reach_the_server() {
        let server = testkit::apiserver::ApiServer::new();
        let list = BTreeSet::from([Allowed::new(Verb::List, "namespaces", "")]);
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
