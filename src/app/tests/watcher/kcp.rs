//! A KCP that takes everything, from watchers of its own authority.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::process::Folder;

/// What has come: the request line and the body of each.
pub(crate) struct Kcp {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<(String, String)>>>,
}

impl Kcp {
    /// Runs until the test ends.
    pub(crate) fn start(folder: &Folder) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(folder.authority().clone()).unwrap();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let (certificate, key) = folder.certificate();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kcp = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
        };
        let (config, received) = (Arc::new(config), kcp.received.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, received) = (config.clone(), received.clone());
                std::thread::spawn(move || serve(stream.unwrap(), config, &received));
            }
        });
        kcp
    }

    /// The bodies that came for `path`.
    pub(crate) fn bodies(&self, path: &str) -> Vec<String> {
        let line = format!("POST {path} HTTP/1.1");
        let received = self.received.lock().unwrap();
        let bodies = received.iter().filter(|(it, _)| *it == line);
        bodies.map(|(_, body)| body.clone()).collect()
    }
}

/// One connection, until the watcher closes it.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, received: &Mutex<Vec<(String, String)>>) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let mut bytes = Vec::new();
    let mut room = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut room) {
        bytes.extend_from_slice(&room[..length]);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let announced = head
            .lines()
            .find_map(|it| it.strip_prefix("content-length: "));
        if body.len() < announced.unwrap().parse().unwrap() {
            continue;
        }
        let line = head.lines().next().unwrap().to_owned();
        received.lock().unwrap().push((line, body.to_owned()));
        bytes.clear();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).unwrap();
    }
}
