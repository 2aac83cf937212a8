//! What a peer may take, in time and in bytes.

use std::time::Duration;

/// What a peer may take. The defaults suit an admission webhook behind a Kubernetes API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// From the accepted TCP connection to the finished TLS handshake. Default 5 s.
    pub handshake: Duration,
    /// From the first byte of a request to the end of its header. Default 5 s.
    ///
    /// The clock does not run while a connection is silent, not even before its first request: Go's
    /// client keeps connections it dialled and did not need, and sends on them later.
    pub header: Duration,
    /// Largest request header, in bytes: request line and fields. More: the answer is 431 and the connection ends.
    /// Also the size of the buffer that a connection reads into, so every connection may hold this much. At least
    /// 8 KiB. Default 16 KiB: the API server's header is below 1 KiB.
    pub header_bytes: usize,
    /// Bytes of all incomplete headers together. When there are more, the connections whose header has been incomplete
    /// for longest are closed. Default 4 MiB; at least [`header_bytes`](Self::header_bytes).
    pub headers_bytes: usize,
    /// From the end of the header to the end of the body, however steadily it arrives. Late: the
    /// answer is 408 and the connection ends. Default 3 s: the webhooks are registered with `timeoutSeconds: 3`, so
    /// the API server has given up by then.
    pub body: Duration,
    /// Largest body, in bytes. More: the answer is 413 and the connection ends. Default 7 MiB: an
    /// AdmissionReview carries the old and the new object, each below etcd's and the API server's 3 MiB.
    pub body_bytes: usize,
    /// Bytes of all bodies together, from their arrival until the handler drops them, counted in blocks of 16 KiB.
    /// Default 16 MiB; at least [`body_bytes`](Self::body_bytes), or no body of that size could arrive.
    ///
    /// When they are used up, the incomplete bodies that began earliest are answered 503 and their connections end,
    /// so that a body that arrives fast always fits. While all of it is being handled, further bodies wait, within
    /// [`body`](Self::body); late: the answer is 503 as well. The memory may be twice this: the blocks in which bodies
    /// arrive are kept, and a body is copied out of them when it is complete.
    pub bodies_bytes: usize,
    /// Bytes of the bodies of all answers that their peers have not taken. When there are more, the connections whose peer
    /// has taken nothing for longest are closed. Default 8 MiB: more answers than the API server waits for at a time.
    pub answers_bytes: usize,
    /// How long a peer may take none of the bytes of an answer; then the connection ends. Default 5 s: the API server
    /// reads its answers at once.
    pub answer: Duration,
    /// How long a connection may wait for its next request. Default 120 s: above the 90 s after which the API server's own pool drops a
    /// connection, so that in normal operation it is never the server that ends an idle one.
    pub idle: Duration,
    /// Connections at the same time. Default 1024 (about 30 kB each, and up to
    /// [`header_bytes`](Self::header_bytes) more while a request is incomplete).
    ///
    /// At the limit a new connection evicts one whose request is *not* being handled: first of those that
    /// have sent no complete request, whose header or body is incomplete, or that take no answer, the one that has been so for longest; as
    /// soon as these are fewer than an eighth of all, the longest idle of the others, so that a new connection is not
    /// evicted before it can send its request. If all requests are being handled the newest is closed at once and
    /// counted.
    /// It is not left in the backlog: the API server's call would then use up its whole timeout, with
    /// a Pod waiting, and a backlog of callers that have given up keeps an overloaded server overloaded.
    pub connections: usize,
    /// The age after which a connection's next response carries `Connection: close`, so that the API server
    /// dials again and spreads over all replicas. Each connection draws its own age at random, between three quarters of
    /// this and all of it. Default: none.
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
    /// The age that a new connection may reach: between three quarters of [`age`](Self::age) and all of it.
    pub(crate) fn draw_age(&self) -> Option<Duration> {
        self.age
            .map(|longest| longest.mul_f64(fastrand::f64().mul_add(0.25, 0.75)))
    }
}

#[cfg(test)]
mod tests;
