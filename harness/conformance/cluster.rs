//! A cluster that a run checks. The client has only its kubeconfig and sends only the listed requests.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use http::header::{CONTENT_TYPE, WARNING};
use http::{Method, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use serde_json::{Value, json};
use testkit::json::text;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::requests::{Allowed, guarded};

/// A cluster without its list of requests.
#[derive(Clone)]
pub struct Endpoint {
    /// Name of the runtime in the scenario, or `kcp`.
    pub name: String,
    /// Command line of `kubectl` for the cluster: `kubectl --kubeconfig FILE`.
    pub kubectl: String,
    /// Client of the cluster's API server.
    pub client: kube::Client,
}

impl Endpoint {
    /// Returns the cluster of a kubeconfig's current context. It sends no request.
    ///
    /// # Errors
    ///
    /// The file is not readable or not a kubeconfig.
    pub async fn of_file(name: &str, file: &Path) -> Result<Self> {
        let shown = file.display();
        let client = client(file).await;
        Ok(Self {
            name: name.to_owned(),
            kubectl: format!("kubectl --kubeconfig {shown}"),
            client: client.with_context(|| format!("kubeconfig {shown}"))?,
        })
    }
}

async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let text = std::fs::read_to_string(kubeconfig)?;
    let mut config = testkit::client_config(&text).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(kube::Client::try_from(config)?)
}

/// A cluster and the requests that are permitted for it.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) kubectl: String,
    client: kube::Client,
}

impl Cluster {
    pub(crate) fn new(endpoint: &Endpoint, allowed: BTreeSet<Allowed>) -> Self {
        Self {
            name: endpoint.name.clone(),
            kubectl: endpoint.kubectl.clone(),
            client: guarded(endpoint.client.clone(), allowed),
        }
    }

    /// Returns the response to one request within a time limit. Errors contain the request, but never its body.
    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Value, Refused> {
        let refused = |code, cause: String| Refused {
            code,
            text: format!("{method} {path}: {cause}"),
        };
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder().method(method.clone()).uri(path);
        let request = request.header(CONTENT_TYPE, kind).body(bytes);
        let request = request.map_err(|error| refused(None, root_cause(&error)))?;
        match timeout(TIME_LIMIT, self.client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                let said = format!("{} {}", status.code, status.message);
                Err(refused(Some(status.code), said))
            }
            Ok(Err(error)) => Err(refused(None, root_cause(&error))),
            Err(_) => Err(refused(None, format!("no answer within {TIME_LIMIT:?}"))),
        }
    }

    /// Returns an object; `None` if it does not exist.
    pub(crate) async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.send(Method::GET, path, JSON, &Value::Null).await {
            Ok(object) => Ok(Some(object)),
            Err(refused) if refused.code == Some(404) => Ok(None),
            Err(refused) => Err(self.error(&refused)),
        }
    }

    /// Returns the items of a list; none if the kind is not served.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.find(path).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let created = self.send(Method::POST, path, JSON, object).await;
        created.map_err(|refused| self.error(&refused))
    }

    /// Creates an object as a dry run. Returns the warnings of the API server and of webhooks.
    pub(crate) async fn warnings(&self, path: &str, object: &Value) -> Result<Vec<String>> {
        let request = Request::post(format!("{path}?dryRun=All")).header(CONTENT_TYPE, JSON);
        let request = request.body(object.to_string().into_bytes().into())?;
        let exchange = async {
            let response = self.client.send(request).await?;
            let warnings = response.headers().get_all(WARNING).iter();
            let warnings = warnings.filter_map(|it| it.to_str().ok().map(str::to_owned));
            let (status, warnings) = (response.status(), warnings.collect());
            let body = response.into_body().collect_bytes().await?;
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            ensure!(status.is_success(), "{status} {}", text(&body["message"]));
            Ok(warnings)
        };
        let answer = timeout(TIME_LIMIT, exchange).await;
        let answer = answer.map_err(anyhow::Error::from).flatten();
        answer.with_context(|| format!("{}: POST {path}?dryRun=All", self.name))
    }

    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Result<Value> {
        let patched = self.send(Method::PATCH, path, MERGE, change).await;
        patched.map_err(|refused| self.error(&refused))
    }

    /// Deletes an object. It is not an error if the object does not exist, is terminating, or is not that of the preconditions.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<()> {
        match self.send(Method::DELETE, path, JSON, options).await {
            Err(refused) if !matches!(refused.code, Some(404 | 409)) => Err(self.error(&refused)),
            _ => Ok(()),
        }
    }

    /// Returns a text response, such as metrics of a Pod through the proxy of the API server.
    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new())?;
        let answer = timeout(TIME_LIMIT, self.client.request_text(request)).await;
        let answer = answer.with_context(|| format!("GET {path}: no answer"))?;
        answer.map_err(|error| anyhow!("{}: GET {path}: {}", self.name, root_cause(&error)))
    }

    /// Whether the user of the kubeconfig has a permission.
    pub(crate) async fn is_allowed(&self, allowed: &Allowed) -> Result<bool> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": allowed.right(),
        });
        let answer = self.create(REVIEWS, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Returns the standard output of a command in the first container of a Pod.
    pub(crate) async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        command: &[&str],
    ) -> Result<String> {
        let pods = kube::Api::<Pod>::namespaced(self.client.clone(), namespace);
        let exchange = async {
            let parameters = AttachParams::default();
            let process = pods.exec(pod, command.to_vec(), &parameters).await;
            let mut process = process.map_err(|error| anyhow!("{}", root_cause(&error)))?;
            let status = process.take_status();
            let (mut out, mut err) = (String::new(), String::new());
            if let (Some(stdout), Some(stderr)) = (process.stdout(), process.stderr()) {
                let (mut stdout, mut stderr) = (stdout.take(LARGEST), stderr.take(LARGEST));
                let out = stdout.read_to_string(&mut out);
                tokio::try_join!(out, stderr.read_to_string(&mut err))?;
            }
            let status = match status {
                Some(status) => status.await,
                None => None,
            };
            let ended = status.and_then(|it| it.status).unwrap_or_default();
            ensure!(ended == "Success", "{ended} {}", err.trim());
            Ok(out)
        };
        let printed = timeout(TIME_LIMIT, exchange).await;
        let printed = printed.map_err(anyhow::Error::from).flatten();
        printed.with_context(|| format!("{}: run {command:?} in Pod {namespace}/{pod}", self.name))
    }

    fn error(&self, refused: &Refused) -> anyhow::Error {
        anyhow!("{}: {}", self.name, refused.text)
    }
}

/// Returns the innermost cause, because the outer ones only state that a request failed.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A failed request: the API server's error, or no response.
struct Refused {
    code: Option<u16>,
    text: String,
}

/// Path of access reviews.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of one request.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Largest output of a command in bytes.
const LARGEST: u64 = 1 << 20;
