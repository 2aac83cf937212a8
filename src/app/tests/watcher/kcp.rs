//! A KCP that accepts all events and heartbeats of watchers with a certificate of the test CA.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use testkit::tls::{TlsServer, answer};

use super::process::Folder;

/// A KCP that runs until it is dropped.
pub(crate) struct Kcp {
    server: TlsServer,
    /// The request line and the body of each request.
    received: Arc<Mutex<Vec<(String, String)>>>,
}

impl Kcp {
    pub(crate) async fn start(folder: &Folder) -> Self {
        let leaf = folder.authority.leaf("kcp").unwrap();
        let config = leaf.server_config(&["http/1.1"], Some(&folder.authority));
        let received = Arc::<Mutex<Vec<_>>>::default();
        let noted = received.clone();
        let server = TlsServer::answering(config.unwrap(), move |request| {
            let noted = noted.clone();
            async move {
                let (head, body) = request.into_parts();
                let line = format!("{} {} {:?}", head.method, head.uri, head.version);
                let body = body.collect().await.unwrap().to_bytes();
                let body = String::from_utf8(body.to_vec()).unwrap();
                noted.lock().unwrap().push((line, body));
                answer(200, "")
            }
        });
        Self {
            server: server.await.unwrap(),
            received,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the bodies of the requests for `path`.
    pub(crate) fn bodies(&self, path: &str) -> Vec<String> {
        let line = format!("POST {path} HTTP/1.1");
        let received = self.received.lock().unwrap();
        let bodies = received.iter().filter(|(it, _)| *it == line);
        bodies.map(|(_, body)| body.clone()).collect()
    }
}
