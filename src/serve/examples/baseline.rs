//! Baseline server of the benchmarks: reads each request to its end and always returns the same response.
//!
//! `baseline ADDRESS CERTIFICATE KEY`; certificate and key are PEM files. With this TLS and HTTP stack, a component of the
//! product has at least the cost of this server; see docs/benchmarks.md.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use rt_bootstrapper_serve::pair::CertificatePair;
use rt_bootstrapper_serve::{Options, Server, TlsHandle, server_config};
use tokio_util::sync::CancellationToken;

/// Allocator of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RESPONSE: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"00000000-0000-4000-8000-000000000000","allowed":true}}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key] = arguments.as_slice() else {
        return Err("usage: baseline ADDRESS CERTIFICATE KEY".into());
    };
    let address: SocketAddr = address.parse()?;
    let pair = CertificatePair::from_pem(&std::fs::read(certificate)?, &std::fs::read(key)?)?;
    let tls = TlsHandle::new(server_config(&pair)?);
    let router = Router::new().fallback(post(async |_: Bytes| {
        ([(CONTENT_TYPE, "application/json")], RESPONSE)
    }));
    let server = Server::bind(address, Options::tls(tls)).await?;
    server.run(router, CancellationToken::new()).await?;
    Ok(())
}
