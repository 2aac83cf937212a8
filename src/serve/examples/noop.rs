//! The least that a webhook can do: reads each review to its end, and always gives the same answer.
//!
//! `noop ADDRESS CERTIFICATE KEY`, the latter two as PEM files. What a real webhook costs beyond this, it costs by
//! itself; see docs/benchmarks.md.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use serve::{Options, Server, TlsHandle, identity_from_pem, server_config};
use tokio_util::sync::CancellationToken;

/// The product's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ANSWER: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"00000000-0000-4000-8000-000000000000","allowed":true}}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key] = arguments.as_slice() else {
        return Err("usage: noop ADDRESS CERTIFICATE KEY".into());
    };
    let address: SocketAddr = address.parse()?;
    let identity = identity_from_pem(&std::fs::read(certificate)?, &std::fs::read(key)?)?;
    let tls = TlsHandle::new(server_config(identity)?);
    let router = Router::new().fallback(post(async |_: Bytes| {
        ([(CONTENT_TYPE, "application/json")], ANSWER)
    }));
    let server = Server::bind(address, Options::new(tls)).await?;
    server.run(router, CancellationToken::new()).await?;
    Ok(())
}
