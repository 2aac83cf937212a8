//! Limits for clients, in time and in bytes.

use std::time::Duration;

/// Limits for clients. The defaults suit an admission webhook behind a Kubernetes API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum time from the accepted TCP connection to the completed TLS handshake. Default 5 s.
    pub handshake: Duration,
    /// Maximum time from the first byte of a request to the end of its header. Default 5 s.
    ///
    /// This timeout does not apply to an idle connection, even before its first request: the HTTP client of Go keeps
    /// connections that it dialed and did not use, and uses them later.
    pub header: Duration,
    /// Maximum size of a request header, in bytes: request line and fields. A larger header results in a 431, and the
    /// connection is closed. This is also the size of the read buffer of each connection. At least 8 KiB. Default 16 KiB;
    /// the header of the API server is below 1 KiB.
    pub header_bytes: usize,
    /// Maximum size of all incomplete headers together, in bytes. Beyond it, the connections with the oldest incomplete
    /// headers are closed. Default 4 MiB; at least [`header_bytes`](Self::header_bytes).
    pub headers_bytes: usize,
    /// Maximum time from the end of the header to the end of the body. After it, the response is 408 and the connection is
    /// closed. Default 3 s: the webhooks are registered with `timeoutSeconds: 3`, so the timeout of the API server has
    /// expired by then.
    pub body: Duration,
    /// Maximum size of a body, in bytes. A larger body results in a 413, and the connection is closed. Default 7 MiB: an
    /// AdmissionReview contains the old and the new object, each below the limit of 3 MiB of etcd and the API server.
    pub body_bytes: usize,
    /// Maximum size of all bodies together, from their arrival until the handler drops them, in bytes, counted in blocks of
    /// 16 KiB. Default 16 MiB; at least [`body_bytes`](Self::body_bytes), because otherwise no body of that size could
    /// arrive.
    ///
    /// Beyond it, the oldest incomplete bodies get a 503 and their connections are closed, so that a body that arrives fast
    /// always has capacity. While all bodies are being handled, further bodies wait for at most [`body`](Self::body), and
    /// then also get a 503. The memory may be twice this limit: the blocks that receive bodies are kept, and a complete
    /// body is copied from its blocks.
    pub bodies_bytes: usize,
    /// Maximum size of all response bodies that clients have not read yet, in bytes. Beyond it, the connections whose
    /// clients have been stalled longest are closed. Default 8 MiB, which exceeds the responses for which the API server
    /// waits at a time.
    pub answers_bytes: usize,
    /// Maximum time in which a client accepts no bytes of a response. After it, the connection is closed. Default 5 s: the
    /// API server reads responses at once.
    pub answer: Duration,
    /// Maximum time between two requests on a connection. Default 120 s: it exceeds the 90 s after which the connection
    /// pool of the API server closes a connection, so that the server does not close idle connections in normal operation.
    pub idle: Duration,
    /// Maximum number of concurrent connections. Default 1024 (about 30 kB each, up to
    /// [`header_bytes`](Self::header_bytes) more while a request is incomplete, and up to 40 KiB more while a TLS record or
    /// handshake is).
    ///
    /// At the limit, a new connection evicts a connection whose request is *not* being handled. First come connections
    /// without a complete request, with an incomplete header or body, or with a stalled response; of these, the one that
    /// has been so for longest. If they are fewer than an eighth of all connections, the longest idle connection is evicted
    /// instead, so that a new connection is not evicted before it can send its request. If all requests are being handled,
    /// the new connection is closed at once and counted. It is not left in the backlog, because the call of the API server
    /// would then use its whole timeout while a Pod waits, and a backlog of clients whose timeouts have expired keeps an
    /// overloaded server overloaded.
    pub connections: usize,
    /// Age after which the next response on a connection contains `Connection: close`, so that the API server reconnects
    /// and distributes connections to all replicas. Each connection has a random age between three quarters of this value
    /// and this value. Default: none.
    pub age: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            header: Duration::from_secs(5),
            header_bytes: 16 * 1024,
            headers_bytes: 4 * 1024 * 1024,
            body: Duration::from_secs(3),
            body_bytes: 7 * 1024 * 1024,
            bodies_bytes: 16 * 1024 * 1024,
            answers_bytes: 8 * 1024 * 1024,
            answer: Duration::from_secs(5),
            idle: Duration::from_mins(2),
            connections: 1024,
            age: None,
        }
    }
}

impl Limits {
    /// Returns the maximum age of a new connection: a random value between three quarters of [`age`](Self::age) and `age`.
    pub(crate) fn draw_age(&self) -> Option<Duration> {
        self.age
            .map(|longest| longest.mul_f64(fastrand::f64().mul_add(0.25, 0.75)))
    }
}

#[cfg(test)]
mod tests;
