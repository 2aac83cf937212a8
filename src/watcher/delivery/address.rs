//! `KCP_ADDR`: where KCP's gateway is.
//!
//! Invariant: a host and a port that can stand in a URL and in a TLS handshake, and nothing beside them (no scheme, no
//! user, no path). The public watcher pastes the text into a URL.

use std::fmt;

use http::HeaderValue;
use http::uri::Authority;
use rustls::pki_types::ServerName;

/// Of `https`.
const DEFAULT_PORT: u16 = 443;

/// KCP's gateway: `host` or `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KcpAddress {
    /// As it was given; a gateway chooses the route by it.
    host: HeaderValue,
    port: u16,
    server_name: ServerName<'static>,
}

/// The text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected host or host:port, without scheme and path")]
pub struct KcpAddressError;

impl KcpAddress {
    /// Takes `text` as KCP's address; IPv6 in brackets. Without a port it is 443.
    ///
    /// # Errors
    /// [`KcpAddressError`].
    pub fn parse(text: &str) -> Result<Self, KcpAddressError> {
        let authority: Authority = text.parse().map_err(|_| KcpAddressError)?;
        if text.contains('@') {
            return Err(KcpAddressError);
        }
        let host = authority.host();
        // A colon with nothing, or with no number, behind it is in the text and not in the port.
        let port = match (text.len() > host.len(), authority.port_u16()) {
            (false, _) => DEFAULT_PORT,
            (true, Some(port)) if port > 0 => port,
            (true, _) => return Err(KcpAddressError),
        };
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let server_name = ServerName::try_from(bare.unwrap_or(host).to_owned());
        Ok(Self {
            host: HeaderValue::from_str(text).map_err(|_| KcpAddressError)?,
            port,
            server_name: server_name.map_err(|_| KcpAddressError)?,
        })
    }

    /// The value of `Host`.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(super) fn server_name(&self) -> &ServerName<'static> {
        &self.server_name
    }

    /// What to look up, and the port.
    pub(super) fn target(&self) -> (String, u16) {
        (self.server_name.to_str().into_owned(), self.port)
    }
}

impl fmt::Display for KcpAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(self.host.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// `host` or `host:port`, no scheme.
    #[rstest]
    #[case::a_name("kcp.example", "kcp.example", 443)]
    #[case::with_a_port("kcp.example:8443", "kcp.example", 8443)]
    #[case::one_label("gateway", "gateway", 443)]
    #[case::v4("192.0.2.1:9443", "192.0.2.1", 9443)]
    #[case::v6("[2001:db8::1]:9443", "2001:db8::1", 9443)]
    #[case::v6_without_port("[2001:db8::1]", "2001:db8::1", 443)]
    fn an_address(#[case] text: &str, #[case] host: &str, #[case] port: u16) {
        let address = KcpAddress::parse(text).unwrap();
        assert_eq!(address.target(), (host.to_owned(), port));
        assert_eq!(address.to_string(), text);
    }

    #[rstest]
    #[case::nothing("")]
    #[case::a_scheme("https://kcp.example")]
    #[case::a_path("kcp.example/v2")]
    #[case::a_user("me@kcp.example")]
    #[case::no_host(":443")]
    #[case::no_port("kcp.example:")]
    #[case::port_zero("kcp.example:0")]
    #[case::too_large_a_port("kcp.example:65536")]
    #[case::a_word_for_a_port("kcp.example:https")]
    #[case::a_space("kcp example")]
    #[case::a_line_break("kcp.example\r\nx: y")]
    #[case::bare_v6("2001:db8::1")]
    #[case::no_host_name("-")]
    fn no_address(#[case] text: &str) {
        assert_eq!(KcpAddress::parse(text), Err(KcpAddressError));
    }
}
