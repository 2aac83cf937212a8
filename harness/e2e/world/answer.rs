//! One question to the API server and all that it answers: status, object, warnings.
//!
//! Invariant: nothing is retried and nothing is hidden, not even the `Warning` headers, which typed clients drop.

use anyhow::{Context as _, ensure};
use http::{Method, Request, StatusCode};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The object, or text as a JSON string.
    pub object: Value,
    /// The texts of the `Warning` headers.
    pub warnings: Vec<String>,
}

impl Answer {
    /// The same, if the API server did what was asked.
    ///
    /// # Errors
    /// With its words otherwise.
    pub fn good(self) -> anyhow::Result<Self> {
        ensure!(
            self.status.is_success(),
            "{}: {}",
            self.status,
            self.message()
        );
        Ok(self)
    }

    /// The object at a JSON pointer; null when it is absent.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// What the API server says in its own words.
    #[must_use]
    pub fn message(&self) -> String {
        self.at("/message")
            .as_str()
            .map_or_else(|| self.object.to_string(), str::to_owned)
    }
}

/// Asks one API server.
#[derive(Clone)]
pub struct Dialogue(Client);

impl Dialogue {
    /// With the API server of a kubeconfig.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn with(kubeconfig: &str) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        // A replica that is not ready answers 503, and that is an answer.
        config.default_retry = false;
        Ok(Self(Client::try_from(config)?))
    }

    /// Sends `body` and reads the whole answer.
    ///
    /// # Errors
    /// When no answer arrives; a refusal is an answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let bytes = body
            .map(|body| body.to_string().into_bytes())
            .unwrap_or_default();
        self.send(method, path, kind, bytes).await
    }

    /// The same with a body of any kind.
    ///
    /// # Errors
    /// When no answer arrives.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Answer> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .body(body.into())?;
        let response = self
            .0
            .send(request)
            .await
            .with_context(|| format!("ask {path}"))?;
        let (parts, body) = response.into_parts();
        let bytes = body
            .collect_bytes()
            .await
            .with_context(|| format!("read {path}"))?;
        let object = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        let headers = parts.headers.get_all(http::header::WARNING);
        let warnings = headers
            .iter()
            .filter_map(|value| warning(value.as_bytes()))
            .collect();
        Ok(Answer {
            status: parts.status,
            object,
            warnings,
        })
    }

    /// An object.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.ask(Method::GET, path, None)
            .await?
            .good()
            .with_context(|| path.to_owned())
    }

    /// Changes an object by a merge patch.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn patch(&self, path: &str, changes: &Value) -> anyhow::Result<Answer> {
        self.ask(Method::PATCH, path, Some(changes))
            .await?
            .good()
            .with_context(|| path.to_owned())
    }
}

/// `299 - "text"`, as RFC 7234 has it.
fn warning(header: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(header);
    let (_, quoted) = text.split_once('"')?;
    let (inner, _) = quoted.rsplit_once('"')?;
    Some(inner.replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_warning_is_what_stands_between_the_quotes() {
        let read = |text: &str| super::warning(text.as_bytes());
        assert_eq!(
            read("299 - \"a \\\"b\\\" c\"").as_deref(),
            Some("a \"b\" c")
        );
        assert_eq!(read("299 -"), None);
    }
}
