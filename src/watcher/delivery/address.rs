//! `KCP_ADDR`: a host and a port that are valid in a URL and in a TLS handshake, without any other part.

use std::fmt;

use http::uri::Authority;
use rustls::pki_types::ServerName;

/// Address of the gateway of KCP: `host` or `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KcpAddress(Authority);

/// The text is not a valid address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected host or host:port, without scheme and path")]
pub struct KcpAddressError;

impl KcpAddress {
    /// Parses the address of KCP. An IPv6 address is in brackets. The default port is 443.
    ///
    /// # Errors
    /// [`KcpAddressError`].
    pub fn parse(text: &str) -> Result<Self, KcpAddressError> {
        let authority: Authority = text.parse().map_err(|_| KcpAddressError)?;
        if text.contains('@') {
            return Err(KcpAddressError);
        }
        let host = authority.host();
        // A colon without a valid number after it is part of the text, but not of the port.
        if text.len() > host.len() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(KcpAddressError);
        }
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        ServerName::try_from(bare.unwrap_or(host)).map_err(|_| KcpAddressError)?;
        Ok(Self(authority))
    }

    /// The host; IPv6 in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.host()
    }

    /// The port, if there is one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.0.port_u16()
    }
}

impl fmt::Display for KcpAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_str())
    }
}

#[cfg(test)]
mod tests;
