//! Parsers of flag values, which are validated before the process starts its work.

use std::net::SocketAddr;
use std::time::Duration;

use api::bootstrapper::RestartCause;
use api::syntax::{is_label, is_label_name, is_subdomain};
use component_base::listen::unspecified_address;
use component_base::telemetry::{Filter, TelemetryError};
use jiff::SignedDuration;
use policy::image::Reference;

use crate::amounts;

/// Message about a flag that must have a value.
const EMPTY: &str = "must not be empty";

/// Message about a text that is not an image reference.
pub(crate) const NO_IMAGE: &str =
    "not a valid image reference: expected one such as registry.example.com/path/webhook:1.0.0";

/// Message about a text that is not the name of a namespace.
pub(crate) const NO_NAMESPACE: &str =
    "not a valid namespace: expected at most 63 lower-case letters, digits and `-`";

/// Message about a text that is not a duration.
const NO_DURATION: &str = "not a duration: expected one such as 10m, 30s or 1h30m";

/// Parses the name of an object.
pub(crate) fn object_name(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err(EMPTY),
        text if is_subdomain(text) => Ok(text.to_owned()),
        _ => Err("not a valid object name: expected lower-case letters, digits, `-` and `.`"),
    }
}

/// Parses the name of an object; empty means none.
pub(crate) fn object_name_or_none(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Ok(String::new());
    }
    object_name(text)
}

/// Parses the name of a ClusterTrustBundle; empty means none. The name of a bundle with a signer is `signer.domain:path:name`.
pub(crate) fn bundle_or_none(text: &str) -> Result<String, &'static str> {
    if !text.is_empty() && !text.split(':').all(is_subdomain) {
        return Err(
            "not a valid ClusterTrustBundle name: expected lower-case letters, digits, `-`, `.` and `:`",
        );
    }
    Ok(text.to_owned())
}

/// Parses the name of a namespace.
pub(crate) fn namespace(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err(EMPTY),
        text if is_label(text) => Ok(text.to_owned()),
        _ => Err(NO_NAMESPACE),
    }
}

/// Parses an image reference with a tag or digest, so that each pull gets the same image.
pub(crate) fn pinned_image(text: &str) -> Result<String, &'static str> {
    let image = Reference::parse(text).map_err(|_| NO_IMAGE)?;
    if image.tag().is_none() && image.digest().is_none() {
        return Err("must have a tag or a digest");
    }
    Ok(text.to_owned())
}

/// Parses the name of a landscape. Other characters would not be safe in the arguments of a container, where `$(NAME)` is
/// replaced.
pub(crate) fn landscape(text: &str) -> Result<String, &'static str> {
    if !is_label_name(text) {
        return Err(
            "not a valid landscape: expected the syntax of a label value, at most 63 letters, digits, `-`, `_` and `.`",
        );
    }
    Ok(text.to_owned())
}

/// Parses a change after which Pods are restarted.
pub(crate) fn restart_cause(text: &str) -> Result<RestartCause, &'static str> {
    let mut causes = RestartCause::ALL.into_iter();
    causes
        .find(|it| it.flag() == text)
        .ok_or("not a change: expected trust-bundle, pull-secret or configuration")
}

/// Parses `on` or `off`.
pub(crate) fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("not a switch: expected on or off"),
    }
}

/// Parses a log filter for another process.
pub(crate) fn log_filter(text: &str) -> Result<String, TelemetryError> {
    text.parse::<Filter>()?;
    Ok(text.to_owned())
}

/// Parses a listen address. `:PORT` and `PORT` mean all addresses of both families.
pub(crate) fn bind_address(text: &str) -> Result<SocketAddr, &'static str> {
    match text.strip_prefix(':').unwrap_or(text).parse() {
        Ok(port) => Ok(unspecified_address(port)),
        Err(_) => text.parse().map_err(|_| "not an address: expected :PORT for all addresses, or ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080"),
    }
}

/// Parses a duration in the format of Kubernetes flags. `0` needs no unit.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let duration: SignedDuration = text.parse().map_err(|_| NO_DURATION)?;
    duration.try_into().map_err(|_| NO_DURATION)
}

/// Parses the time between repetitions. Zero is invalid, because it would cause a busy loop.
pub(crate) fn period(text: &str) -> Result<Duration, &'static str> {
    let period = duration(text).ok().filter(|it| !it.is_zero());
    period.ok_or("not a period: expected a duration longer than 0, such as 10m, 30s or 1h30m")
}

/// Parses a number of bytes.
pub(crate) fn size(text: &str) -> Result<u64, &'static str> {
    let plain = text.parse().ok();
    plain
        .or_else(|| amounts::memory(text).ok())
        .ok_or("not a size: expected bytes, or a binary suffix as in 64Mi")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10m", Some(Duration::from_mins(10)))]
    #[case("1h30m", Some(Duration::from_mins(90)))]
    #[case("500ms", Some(Duration::from_millis(500)))]
    #[case("0s", Some(Duration::ZERO))]
    #[case("0", Some(Duration::ZERO))]
    #[case("600", None)]
    #[case("-5s", None)]
    #[case("5s ago", None)]
    #[case("soon", None)]
    #[case("", None)]
    fn durations_have_units(#[case] text: &str, #[case] expected: Option<Duration>) {
        assert_eq!(duration(text).ok(), expected);
        let longer_than_none = expected.filter(|it| !it.is_zero());
        assert_eq!(period(text).ok(), longer_than_none);
    }

    #[rstest]
    #[case("64Mi", Some(64 << 20))]
    #[case("1Gi", Some(1 << 30))]
    #[case("262144", Some(262_144))]
    #[case("64M", None)]
    #[case("-1", None)]
    #[case("", None)]
    fn sizes_have_binary_suffixes_or_none(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(size(text).ok(), expected);
    }

    #[rstest]
    #[case::port_with_colon(":9443", Some("[::]:9443"))]
    #[case::port("9443", Some("[::]:9443"))]
    #[case::any_free_port(":0", Some("[::]:0"))]
    #[case::ipv4("127.0.0.1:80", Some("127.0.0.1:80"))]
    #[case::all_of_ipv4("0.0.0.0:80", Some("0.0.0.0:80"))]
    #[case::ipv6("[::1]:80", Some("[::1]:80"))]
    #[case::too_large(":65536", None)]
    #[case::no_port("127.0.0.1", None)]
    #[case::no_port_behind_the_colon(":", None)]
    #[case::host("localhost:80", None)]
    #[case::empty("", None)]
    fn addresses_are_ports_or_addresses_with_ports(
        #[case] text: &str,
        #[case] expected: Option<&str>,
    ) {
        let expected = expected.map(|it| it.parse().unwrap());
        assert_eq!(bind_address(text).ok(), expected);
    }
}
