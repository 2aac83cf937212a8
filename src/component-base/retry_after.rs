//! The `Retry-After` header of a response.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::Timestamp;

/// Returns the value of `Retry-After`, in seconds or as a date (RFC 9110 §10.2.3), at most `most`. `None` if it is absent
/// or invalid.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp, most: Duration) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if let Ok(seconds) = text.parse() {
        Duration::from_secs(seconds)
    } else {
        let until = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        until.duration_since(now).try_into().unwrap_or_default()
    };
    Some(wait.min(most))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::seconds("7", Some(7))]
    #[case::now("0", Some(0))]
    #[case::blanks(" 7 ", Some(7))]
    #[case::too_long("86400", Some(300))]
    #[case::beyond_numbers("99999999999999999999", None)]
    #[case::negative("-1", None)]
    #[case::date("Sat, 21 Nov 2026 03:00:20 GMT", Some(20))]
    #[case::past_date("Sat, 21 Nov 2026 02:00:00 GMT", Some(0))]
    #[case::far_date("Sun, 21 Nov 2027 03:00:20 GMT", Some(300))]
    #[case::nonsense("soon", None)]
    fn retry_after_is_understood(#[case] text: &str, #[case] seconds: Option<u64>) {
        let now: Timestamp = "2026-11-21T03:00:00Z".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, text.parse().unwrap());
        assert_eq!(
            retry_after(&headers, now, Duration::from_mins(5)),
            seconds.map(Duration::from_secs)
        );
    }
}
