//! The client of the API server of one runtime, for one reconcile.
//!
//! Invariants: one connection for all requests (HTTP/2: concurrent; HTTP/1.1: one after the other), at most
//! [`CONCURRENT_REQUESTS`] at a time; a request is sent at most once. If the server has closed the connection before a
//! request is sent, another connection is opened; a request that fails later has to be repeated by the caller.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::time::timeout;

use super::Shared;
use super::body::serialize;
use super::connection::Connection;
use super::decode::{ManagedFields, check, read};
use super::dial::{Target, dial};
use super::error::{CallError, Phase};
use super::exchange::{RequestBuilder, receive};

/// Maximum number of concurrent requests of one connection. A reconcile sends at most this number of reads in one
/// step, so that no read needs a second round trip. API priority and fairness of an API server allows more.
pub(super) const CONCURRENT_REQUESTS: usize = 16;

/// A client of one runtime. Clones share its connection, which is closed with the last of them.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
    managed_fields: ManagedFields,
}

struct Inner {
    shared: Arc<Shared>,
    target: Target,
    connection: Mutex<Option<Connection>>,
    permits: Semaphore,
}

impl Remote {
    pub(super) fn new(shared: Arc<Shared>, target: Target) -> Self {
        Self {
            inner: Arc::new(Inner {
                shared,
                target,
                connection: Mutex::default(),
                permits: Semaphore::new(CONCURRENT_REQUESTS),
            }),
            managed_fields: ManagedFields::All,
        }
    }

    /// Returns the client with this extent of decoding `metadata.managedFields`.
    #[must_use]
    pub fn with_managed_fields(self, managed_fields: ManagedFields) -> Self {
        Self {
            managed_fields,
            ..self
        }
    }

    /// Opens the connection before the first request, so that the caller can do other work and the first request does
    /// not wait for a handshake. The caller limits how many connections are opened at once.
    ///
    /// # Errors
    /// See [`CallError`]: the runtime cannot be reached.
    pub async fn connect(&self) -> Result<(), CallError> {
        let mut slot = self.inner.connection.lock().await;
        let measurement = self.inner.shared.metrics.begin("connect");
        let result = self.inner.connected(&mut slot).await.map(drop);
        match &result {
            Ok(()) => measurement.end_uncounted(),
            Err(error) => measurement.end(error.status()),
        }
        result
    }

    /// Reads an object; `None` if it does not exist.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn get(&self, path: &str) -> Result<Option<Value>, CallError> {
        let request = RequestBuilder::new("get", Method::GET, path);
        match self.call(request).await {
            Err(error) if error.is_not_found() => Ok(None),
            body => read(&body?, self.managed_fields).map(Some),
        }
    }

    /// Reads a collection, or another resource that must exist. The path includes the query.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list(&self, path_and_query: &str) -> Result<Value, CallError> {
        let request = RequestBuilder::new("list", Method::GET, path_and_query);
        read(&self.call(request).await?, self.managed_fields)
    }

    /// Reads the metadata of the items of a collection; see [`Self::list`]. Whole objects of a page may exceed the
    /// limit of a response, and may contain credentials.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list_metadata(&self, path_and_query: &str) -> Result<Value, CallError> {
        let request = RequestBuilder::new("list", Method::GET, path_and_query).metadata_only();
        read(&self.call(request).await?, self.managed_fields)
    }

    /// Creates an object as the field manager.
    ///
    /// # Errors
    /// See [`CallError`]; an object of the same name is a `Conflict`.
    pub async fn create(
        &self,
        path: &str,
        object: &Arc<Value>,
        manager: &str,
    ) -> Result<(), CallError> {
        let path = format!("{path}?fieldManager={manager}");
        self.post(&path, object).await.map(drop)
    }

    /// Applies an object server-side as the field manager; `force` overrides other field managers. The bytes of an
    /// object for many runtimes are shared.
    ///
    /// # Errors
    /// See [`CallError`]; a field that another manager owns is a `Conflict` that is not transient.
    pub async fn apply(
        &self,
        path: &str,
        object: &Arc<Value>,
        manager: &str,
        force: bool,
    ) -> Result<(), CallError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}fieldManager={manager}&force={force}");
        let request = RequestBuilder::new("apply", Method::PATCH, &path);
        // YAML is a superset of JSON.
        let body = self.inner.shared.bodies.serialize(object);
        check(&self.call(request.body(APPLY_PATCH, body)).await?)
    }

    /// Applies the operations of an RFC 6902 patch.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn json_patch(&self, path: &str, operations: &Value) -> Result<(), CallError> {
        let request = RequestBuilder::new("patch", Method::PATCH, path);
        check(
            &self
                .call(request.body(JSON_PATCH, serialize(operations)))
                .await?,
        )
    }

    /// Creates an object, or a review such as a SelfSubjectAccessReview.
    ///
    /// # Errors
    /// See [`CallError`]; a name that exists already is a `Conflict` that is not transient.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let request = RequestBuilder::new("create", Method::POST, path);
        read(
            &self.call(request.body(JSON, serialize(body))).await?,
            ManagedFields::All,
        )
    }

    /// Deletes an object, if the preconditions (`uid`, `resourceVersion`) hold; returns whether it existed. In the
    /// foreground, it is kept until its dependents are deleted.
    ///
    /// # Errors
    /// See [`CallError`]; a precondition that does not hold is a `Conflict`.
    pub async fn delete(
        &self,
        path: &str,
        preconditions: Option<&Value>,
        foreground: bool,
    ) -> Result<bool, CallError> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if foreground {
            options["propagationPolicy"] = "Foreground".into();
        }
        if let Some(preconditions) = preconditions {
            options["preconditions"] = preconditions.clone();
        }
        let request = RequestBuilder::new("delete", Method::DELETE, path);
        match self.call(request.body(JSON, serialize(&options))).await {
            Err(error) if error.is_not_found() => Ok(false),
            body => body.map(|_| true),
        }
    }

    async fn call(&self, request: RequestBuilder) -> Result<Bytes, CallError> {
        // The semaphore is never closed.
        let _permit = self.inner.permits.acquire().await;
        let slot = self.inner.connection.lock().await;
        let measurement = self.inner.shared.metrics.begin(request.verb);
        // Boxed, so that a waiting request does not hold the memory of the following future.
        let result = Box::pin(self.inner.send(slot, &request)).await;
        let status = match &result {
            Ok((status, _)) => Some(*status),
            Err(error) => error.status(),
        };
        measurement.end(status);
        result.map(|(_, body)| body)
    }
}

impl Inner {
    async fn send(
        &self,
        mut slot: MutexGuard<'_, Option<Connection>>,
        request: &RequestBuilder,
    ) -> Result<(u16, Bytes), CallError> {
        let connection = self.connected(&mut slot).await?;
        let is_http2 = connection.is_http2();
        let (response, _in_use) = connection.send(request.build(&self.target, is_http2)?);
        // Over HTTP/1.1 the next request waits for the response to this one.
        let _turn = if is_http2 {
            drop(slot);
            None
        } else {
            Some(slot)
        };
        let limit = self.shared.options.call_timeout;
        timeout(limit, receive(response))
            .await
            .unwrap_or(Err(CallError::TimedOut(Phase::Answering, limit)))
    }

    /// The existing connection if it can carry another request, otherwise a new one.
    async fn connected<'a>(
        &self,
        slot: &'a mut Option<Connection>,
    ) -> Result<&'a mut Connection, CallError> {
        let limit = self.shared.options.connect_timeout;
        // Boxed: the state of a handshake is large, and a request that waits for its response needs none of it.
        let connect = Box::pin(async {
            if let Some(mut connection) = slot.take()
                && connection.is_ready().await
            {
                return Ok(connection);
            }
            // Boxed too, because most requests need no new connection.
            let stream = Box::pin(dial(&self.target, &self.shared)).await?;
            Box::pin(Connection::establish(stream, &self.shared.metrics)).await
        });
        let connection = timeout(limit, connect)
            .await
            .unwrap_or(Err(CallError::TimedOut(Phase::Connecting, limit)))?;
        Ok(slot.insert(connection))
    }
}

const APPLY_PATCH: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const JSON: &str = "application/json";
