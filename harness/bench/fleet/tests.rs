//! The fleet as its clients see it, each test with a fleet of its own.

mod conditions;
mod identities;
mod objects;
mod transport;

use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as KubeConfig};

use super::*;

const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/registry-credentials";
const PATIENCE: Duration = Duration::from_secs(10);

async fn fleet(runtimes: usize, conditions: Conditions) -> Fleet {
    let options = FleetOptions {
        runtimes,
        conditions,
        ..FleetOptions::default()
    };
    Fleet::start(options).await.unwrap()
}

async fn config(kubeconfig: &str) -> KubeConfig {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    config
}

async fn client(fleet: &Fleet, number: usize) -> Client {
    let kubeconfig = fleet.kubeconfig(number).unwrap();
    Client::try_from(config(&kubeconfig).await).unwrap()
}

type Answered = (StatusCode, HeaderMap, Value);

async fn call(client: &Client, request: Request<Body>) -> Result<Answered, kube::Error> {
    let (head, body) = client.send(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let value = serde_json::from_slice(&body).unwrap_or_default();
    Ok((head.status, head.headers, value))
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn apply(path: &str, object: &Value) -> Request<Body> {
    Request::patch(format!(
        "{path}?fieldManager=rt-bootstrapper-controller&force=true"
    ))
    .header("content-type", "application/apply-patch+yaml")
    .body(object.to_string().into_bytes().into())
    .unwrap()
}

fn secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "registry-credentials", "namespace": "kyma-system"},
        "data": {"password": password},
    })
}

fn secret_place() -> Place {
    Place {
        resource: "secrets".to_owned(),
        namespace: "kyma-system".to_owned(),
        name: "registry-credentials".to_owned(),
    }
}

async fn status(client: &Client, request: Request<Body>) -> StatusCode {
    call(client, request).await.unwrap().0
}
