//! The address of an API server, from the URL in a kubeconfig.
//!
//! Invariant: https, a DNS name or an IP address, a port, and a path that can be put before any API path as it is.
//! Deliberately absent: user information, query and fragment (refused: no API server's address has them), and any
//! opinion on where the address leads.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// Where an API server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    host: String,
    port: u16,
    prefix: String,
}

/// Why a URL is no address of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerFault {
    /// There is none.
    #[error("URL is missing")]
    Absent,
    /// Another scheme, or none.
    #[error("expected an https URL")]
    NotHttps,
    /// The host is neither a DNS name nor an IP address, or user information stands before it.
    #[error("host of the URL: not a valid DNS name or IP address")]
    Host,
    /// The port is no number from 1 to 65535.
    #[error("port of the URL: not a valid port")]
    Port,
    /// The path has a query, a fragment or characters that no path has.
    #[error("path of the URL: not a plain path")]
    Path,
}

impl Server {
    /// A DNS name or an IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// 443 unless the URL says otherwise.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What stands before every API path: empty, or begins with a slash and ends without one.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// `host:port` as it stands in a URL or a `Host` header: IPv6 in brackets, the default port left out.
impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]", self.host)?;
        } else {
            formatter.write_str(&self.host)?;
        }
        if self.port == HTTPS {
            return Ok(());
        }
        write!(formatter, ":{}", self.port)
    }
}

impl FromStr for Server {
    type Err = ServerFault;

    fn from_str(url: &str) -> Result<Self, ServerFault> {
        if url.is_empty() {
            return Err(ServerFault::Absent);
        }
        let (scheme, rest) = url.split_once("://").ok_or(ServerFault::NotHttps)?;
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(ServerFault::NotHttps);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = split_port(authority)?;
        let prefix = path.trim_end_matches('/');
        if !prefix.bytes().all(is_path) {
            return Err(ServerFault::Path);
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
            prefix: prefix.to_owned(),
        })
    }
}

fn split_port(authority: &str) -> Result<(&str, u16), ServerFault> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(ServerFault::Host)?;
        host.parse::<Ipv6Addr>().map_err(|_| ServerFault::Host)?;
        (host, port)
    } else {
        let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        ServerName::try_from(host).map_err(|_| ServerFault::Host)?;
        (host, port)
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host, HTTPS)),
        None => Err(ServerFault::Host),
        Some(digits) => Ok((host, parse_port(digits)?)),
    }
}

/// `u16`'s own parser would take a sign.
fn parse_port(digits: &str) -> Result<u16, ServerFault> {
    if !digits.bytes().all(|it| it.is_ascii_digit()) {
        return Err(ServerFault::Port);
    }
    match digits.parse() {
        Ok(0) | Err(_) => Err(ServerFault::Port),
        Ok(port) => Ok(port),
    }
}

/// The characters of a path (RFC 3986 §3.3).
fn is_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)
}

const HTTPS: u16 = 443;
