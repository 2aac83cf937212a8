//! The API server of one runtime, for as long as a pass over it takes.
//!
//! Invariants: one connection at a time carries new calls (HTTP/2: side by side; HTTP/1.1: one after the other); a
//! call is sent at most once; a runtime waits for at most one place in the window. A call that found a kept connection
//! closed has sent nothing yet and opens another; one that fails later is the caller's to repeat.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::connection::{Connection, Lease, Sender, Setup, Slot};
use super::dial::{Limits, Target, dial};
use super::error::{CallError, Phase};
use super::exchange::{Answer, Draft};
use super::metrics::Code;
use super::pace::Bucket;
use super::reading::{Owners, check, read};
use super::{FleetOptions, Shared};

/// A client of one runtime. Clones share its connection, which ends with the last of them.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
    owners: Owners,
}

pub(super) struct Inner {
    pub(super) fleet: Arc<Shared>,
    pub(super) target: Target,
    pub(super) bucket: Arc<Bucket>,
    pub(super) slot: Arc<Slot>,
}

impl Remote {
    pub(super) fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
            owners: Owners::Whole,
        }
    }

    /// The same client, which reads no more than this of what it is told about owners of fields.
    #[must_use]
    pub fn with_owners(self, owners: Owners) -> Self {
        Self { owners, ..self }
    }

    /// Makes the connection now that the first call would make: who waits for something else before that call has a
    /// handshake less to wait for. It is no call: it takes neither a token nor a place in the window, so the caller
    /// bounds how many are made at once.
    ///
    /// # Errors
    /// See [`CallError`]: the runtime cannot be reached.
    pub async fn connect(&self) -> Result<(), CallError> {
        let Inner { fleet, slot, .. } = &*self.inner;
        let mut slot = slot.clone().lock_owned().await;
        let measurement = fleet.metrics.begin("connect");
        let result = self.inner.establish(&mut slot).await;
        match &result {
            Ok(()) => measurement.end_uncounted(),
            Err(error) => measurement.end(Code(error.status())),
        }
        result
    }

    /// Reads an object; `None` when it is not there.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn get(&self, path: &str) -> Result<Option<Value>, CallError> {
        match self.call(draft("get", Method::GET, path)).await {
            Ok(body) => read(&body, self.owners).map(Some),
            Err(CallError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a collection, or anything else that must be there. The query belongs to the path.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list(&self, path_and_query: &str) -> Result<Value, CallError> {
        let body = self
            .call(draft("list", Method::GET, path_and_query))
            .await?;
        read(&body, self.owners)
    }

    /// Applies an object server-side as the field manager; `force` takes fields over from others.
    ///
    /// # Errors
    /// See [`CallError`]; a field that another manager owns is a `Conflict` that is not transient.
    pub async fn apply(
        &self,
        path: &str,
        body: &Value,
        manager: &str,
        force: bool,
    ) -> Result<(), CallError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}fieldManager={manager}&force={force}");
        let draft = draft("apply", Method::PATCH, &path);
        // JSON is YAML.
        let body = self.call(with(draft, APPLY_PATCH, body)).await?;
        check(&body)
    }

    /// Applies the operations of an RFC 6902 patch.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn json_patch(&self, path: &str, operations: &Value) -> Result<(), CallError> {
        let draft = draft("patch", Method::PATCH, path);
        let body = self.call(with(draft, JSON_PATCH, operations)).await?;
        check(&body)
    }

    /// Creates an object, or asks a question such as a SelfSubjectAccessReview.
    ///
    /// # Errors
    /// See [`CallError`]; a name that is taken is a `Conflict` that is not transient.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let draft = draft("create", Method::POST, path);
        let body = self.call(with(draft, JSON, body)).await?;
        read(&body, Owners::Whole)
    }

    /// Deletes an object, if the preconditions (`uid`, `resourceVersion`) hold; says whether it was there. In the
    /// foreground, it stays until all that it owns is gone.
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
        let draft = draft("delete", Method::DELETE, path);
        match self.call(with(draft, JSON, &options)).await {
            Ok(_) => Ok(true),
            Err(CallError::Refused { status: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for a token, for the connection and for a place, in this order: who waits for a place holds the
    /// connection, so that a runtime stands in the queue once however many calls it has.
    async fn call(&self, draft: Draft) -> Result<Bytes, CallError> {
        let Inner {
            fleet,
            bucket,
            slot,
            ..
        } = &*self.inner;
        fleet.pace.take(bucket).await;
        let slot = slot.clone().lock_owned().await;
        let asked = tokio::time::Instant::now();
        let place = fleet.window.enter().await;
        fleet.metrics.waited(asked.elapsed());
        let measurement = fleet.metrics.begin(draft.verb);
        // Boxed: what waits for a place, and there are many, need not hold the room for what follows.
        let call = Box::pin(self.inner.send(slot, &draft));
        let result = fleet.window.hold(place, call).await;
        let status = match &result {
            Ok((status, _)) => Some(*status),
            Err(error) => error.status(),
        };
        measurement.end(Code(status));
        result.map(|(_, body)| body)
    }
}

impl Inner {
    async fn send(
        &self,
        mut slot: OwnedMutexGuard<Option<Connection>>,
        draft: &Draft,
    ) -> Result<(u16, Bytes), CallError> {
        let (lease, sender) = self.connected(&mut slot).await?;
        match sender {
            Sender::Http1(sender) => {
                let request = draft.request(&self.target, false);
                let answer = Answer::read(sender.send_request(request?));
                // The guard stays until the answer is there: the next call takes its turn.
                self.finish(lease, answer).await
            }
            Sender::Http2(sender) => {
                let request = draft.request(&self.target, true);
                let answer = Answer::read(sender.send_request(request?));
                drop(slot);
                self.finish(lease, answer).await
            }
        }
    }

    /// The connection to send by, and a call's share in it.
    async fn connected<'a>(
        &self,
        slot: &'a mut OwnedMutexGuard<Option<Connection>>,
    ) -> Result<(Lease, &'a mut Sender), CallError> {
        self.establish(slot).await?;
        let connection = slot.as_mut().ok_or(CallError::TimedOut(
            Phase::Connecting,
            self.options().connect_timeout,
        ))?;
        Ok((connection.lease(), &mut connection.sender))
    }

    /// Leaves a connection in the slot: the kept one if it still stands, or a new one in its place.
    async fn establish(
        &self,
        slot: &mut OwnedMutexGuard<Option<Connection>>,
    ) -> Result<(), CallError> {
        let limit = self.options().connect_timeout;
        let establish = async {
            let usable = match slot.as_mut() {
                Some(connection) => connection.is_usable().await,
                None => false,
            };
            if !usable {
                **slot = None;
                // Boxed: the state of a handshake is large, and thousands of calls wait that need none.
                let made = Box::pin(self.connect(OwnedMutexGuard::mutex(slot))).await?;
                **slot = Some(made);
            }
            Ok(())
        };
        timeout(limit, establish)
            .await
            .unwrap_or(Err(CallError::TimedOut(Phase::Connecting, limit)))
    }

    async fn connect(&self, slot: &Arc<Slot>) -> Result<Connection, CallError> {
        let options = self.options();
        let metrics = &self.fleet.metrics;
        let limits = Limits {
            allow_loopback: options.allow_loopback,
            timeout: options.connect_timeout,
        };
        let stream = dial(&self.target, limits, metrics).await?;
        let setup = Setup {
            slot,
            idle: options.idle,
            metrics,
        };
        Connection::establish(setup, stream).await
    }

    /// Reads the answer in time; what was read to its end leaves the connection to the next call.
    async fn finish(
        &self,
        lease: Lease,
        answer: impl Future<Output = Result<Answer, CallError>>,
    ) -> Result<(u16, Bytes), CallError> {
        let limit = self.options().call_timeout;
        let answer = timeout(limit, answer)
            .await
            .unwrap_or(Err(CallError::TimedOut(Phase::Answering, limit)))?;
        lease.end();
        answer.into_result()
    }

    fn options(&self) -> &FleetOptions {
        &self.fleet.options
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Remote")
            .field("server", &self.inner.target.server)
            .finish_non_exhaustive()
    }
}

fn draft(verb: &'static str, method: Method, path: &str) -> Draft {
    Draft {
        verb,
        method,
        path: path.to_owned(),
        body: None,
    }
}

fn with(draft: Draft, content_type: &'static str, body: &Value) -> Draft {
    Draft {
        body: Some((content_type, body.to_string().into())),
        ..draft
    }
}

const APPLY_PATCH: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const JSON: &str = "application/json";
