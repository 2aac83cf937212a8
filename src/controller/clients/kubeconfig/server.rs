//! The address of an API server, from the URL in a kubeconfig.
//!
//! Invariant: https, a DNS name or an IP address, a port, and a path that can precede any API path. User information,
//! query and fragment are rejected, since no API server has them. Not in here: which addresses are allowed.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// The address of an API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    host: String,
    port: u16,
    prefix: String,
}

/// Why a URL is not the address of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerUrlError {
    /// The URL is missing.
    #[error("URL is missing")]
    Absent,
    /// The scheme is missing or not https.
    #[error("expected an https URL")]
    NotHttps,
    /// The host is neither a DNS name nor an IP address, or follows user information.
    #[error("host of the URL: not a valid DNS name or IP address")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("port of the URL: not a valid port")]
    Port,
    /// The path has a query, a fragment or invalid characters.
    #[error("path of the URL: not a plain path")]
    Path,
}

impl Server {
    /// A DNS name or an IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 443 by default.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path before every API path: empty, or with a leading and without a trailing slash.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// Writes `host:port` as in a URL or a `Host` header: IPv6 in brackets, without the default port.
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
    type Err = ServerUrlError;

    fn from_str(url: &str) -> Result<Self, ServerUrlError> {
        if url.is_empty() {
            return Err(ServerUrlError::Absent);
        }
        let (scheme, rest) = url.split_once("://").ok_or(ServerUrlError::NotHttps)?;
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(ServerUrlError::NotHttps);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = split_port(authority)?;
        let prefix = path.trim_end_matches('/');
        if !prefix.bytes().all(is_path) {
            return Err(ServerUrlError::Path);
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
            prefix: prefix.to_owned(),
        })
    }
}

fn split_port(authority: &str) -> Result<(&str, u16), ServerUrlError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(ServerUrlError::Host)?;
        host.parse::<Ipv6Addr>().map_err(|_| ServerUrlError::Host)?;
        (host, port)
    } else {
        let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        ServerName::try_from(host).map_err(|_| ServerUrlError::Host)?;
        (host, port)
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host, HTTPS)),
        None => Err(ServerUrlError::Host),
        Some(digits) => Ok((host, parse_port(digits)?)),
    }
}

/// Parses a port. The parser of `u16` would accept a sign.
fn parse_port(digits: &str) -> Result<u16, ServerUrlError> {
    if !digits.bytes().all(|it| it.is_ascii_digit()) {
        return Err(ServerUrlError::Port);
    }
    match digits.parse() {
        Ok(0) | Err(_) => Err(ServerUrlError::Port),
        Ok(port) => Ok(port),
    }
}

/// Returns whether a byte is a character of a path (RFC 3986 §3.3).
fn is_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)
}

const HTTPS: u16 = 443;
