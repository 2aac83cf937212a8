//! The fleet by HTTP on loopback: what [`Fleet`] can do in process, from another one.
//!
//! `GET /totals`, `GET /kubeconfig/<number>`, `POST /entries`, `POST /arrived`, `POST /object`, `POST /conditions`, `POST /rotate`,
//! `POST /reset`; bodies are JSON. Invariant: nothing here that [`Fleet`] cannot do. Deliberately absent:
//! authentication; the port is on loopback and the fleet holds nothing that is worth anything.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::Place;
use tokio::net::TcpListener;

use super::conditions::Conditions;
use super::ledger::{Arrival, Entry, Totals};
use super::{Fleet, Selection};

/// New conditions for some runtimes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewConditions {
    runtimes: Selection,
    conditions: Conditions,
}

/// One object of one runtime.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    runtime: usize,
    place: Place,
}

/// Serves the fleet's control endpoint until it fails.
///
/// # Errors
/// When the listener does.
pub async fn serve(fleet: Arc<Fleet>, listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, Router::new().fallback(answer).with_state(fleet)).await
}

async fn answer(
    State(fleet): State<Arc<Fleet>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, String) {
    match done(&fleet, &method, uri.path(), &body) {
        Ok(Some(answer)) => (StatusCode::OK, answer.to_string()),
        Ok(None) => (StatusCode::NOT_FOUND, "nothing is there".to_owned()),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error:#}")),
    }
}

fn done(fleet: &Fleet, method: &Method, path: &str, body: &[u8]) -> anyhow::Result<Option<Value>> {
    let nothing = || Some(json!({}));
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    Ok(match (method.as_str(), segments.as_slice()) {
        ("GET", ["totals"]) => Some(serde_json::to_value(fleet.totals())?),
        ("GET", ["kubeconfig", number]) => Some(Value::from(fleet.kubeconfig(number.parse()?)?)),
        ("POST", ["entries"]) => {
            let place: Place = serde_json::from_slice(body)?;
            Some(serde_json::to_value(fleet.entries(&place))?)
        }
        ("POST", ["arrived"]) => {
            let arrival: Arrival = serde_json::from_slice(body)?;
            Some(Value::from(fleet.arrived(&arrival)))
        }
        ("POST", ["object"]) => {
            let Wanted { runtime, place } = serde_json::from_slice(body)?;
            fleet.object(runtime, &place)
        }
        ("POST", ["conditions"]) => {
            let NewConditions {
                runtimes,
                conditions,
            } = serde_json::from_slice(body)?;
            fleet.set(&runtimes, conditions);
            nothing()
        }
        ("POST", ["rotate"]) => {
            fleet.rotate(&serde_json::from_slice(body)?);
            nothing()
        }
        ("POST", ["reset"]) => {
            fleet.reset_counters();
            nothing()
        }
        _ => None,
    })
}

/// A fleet in another process.
#[derive(Debug, Clone)]
pub struct FleetControl {
    url: String,
    client: reqwest::Client,
}

impl FleetControl {
    /// The fleet whose control endpoint is on that port.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self {
            url: format!("http://127.0.0.1:{port}"),
            client: reqwest::Client::new(),
        }
    }

    /// [`Fleet::totals`].
    ///
    /// # Errors
    /// When the fleet is gone.
    pub async fn totals(&self) -> anyhow::Result<Totals> {
        read(self.client.get(self.path("totals"))).await
    }

    /// [`Fleet::kubeconfig`].
    ///
    /// # Errors
    /// When there is no such runtime.
    pub async fn kubeconfig(&self, number: usize) -> anyhow::Result<String> {
        read(self.client.get(self.path(&format!("kubeconfig/{number}")))).await
    }

    /// [`Fleet::entries`].
    ///
    /// # Errors
    /// When the fleet is gone.
    pub async fn entries(&self, place: &Place) -> anyhow::Result<Vec<Entry>> {
        read(self.client.post(self.path("entries")).json(place)).await
    }

    /// [`Fleet::arrived`].
    ///
    /// # Errors
    /// When the fleet is gone.
    pub async fn arrived(&self, arrival: &Arrival) -> anyhow::Result<usize> {
        read(self.client.post(self.path("arrived")).json(arrival)).await
    }

    /// [`Fleet::object`].
    ///
    /// # Errors
    /// When it is not there.
    pub async fn object(&self, runtime: usize, place: &Place) -> anyhow::Result<Value> {
        let place = place.clone();
        let wanted = Wanted { runtime, place };
        read(self.client.post(self.path("object")).json(&wanted)).await
    }

    /// [`Fleet::set`].
    ///
    /// # Errors
    /// When the fleet is gone.
    pub async fn set(&self, runtimes: Selection, conditions: Conditions) -> anyhow::Result<()> {
        let new = NewConditions {
            runtimes,
            conditions,
        };
        self.done("conditions", &new).await
    }

    /// [`Fleet::rotate`].
    ///
    /// # Errors
    /// When the fleet is gone.
    pub async fn rotate(&self, runtimes: &Selection) -> anyhow::Result<()> {
        self.done("rotate", runtimes).await
    }

    /// [`Fleet::reset_counters`].
    ///
    /// # Errors
    /// When the fleet is gone.
    pub async fn reset_counters(&self) -> anyhow::Result<()> {
        self.done("reset", &()).await
    }

    async fn done(&self, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
        let _: Value = read(self.client.post(self.path(path)).json(body)).await?;
        Ok(())
    }

    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }
}

async fn read<T: DeserializeOwned>(request: reqwest::RequestBuilder) -> anyhow::Result<T> {
    let answer = request.send().await.context("the fleet does not answer")?;
    let status = answer.status();
    let text = answer.text().await?;
    ensure!(status.is_success(), "the fleet says {status}: {text}");
    serde_json::from_str(&text).with_context(|| format!("the fleet says {text}"))
}
