//! Identities of the candidates in a leader election.

use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;

/// Maximum length of the host name in a generated identity, in bytes.
const HOST_LIMIT: usize = 63;

/// Maximum length of an identity, in bytes, which equals that of `reportingInstance` of an Event.
const LIMIT: usize = 128;

/// The unique identity of a process in a leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(String);

/// The text is not a valid identity.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid identity: expected 1 to 128 printable ASCII characters without spaces")]
pub struct IdentityError;

impl Identity {
    /// Returns a unique identity: the host name and 64 random bits, similar to client-go.
    ///
    /// For processes outside Pods, where a restarted process does not continue with the Lease of the previous process. The
    /// name of a Pod is already unique.
    #[must_use]
    pub fn random() -> Self {
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        let mut host: String = host.chars().filter(char::is_ascii_graphic).collect();
        host.truncate(HOST_LIMIT);
        // `RandomState` gets its keys from the operating system.
        let suffix = RandomState::new().hash_one(std::process::id());
        Self(format!("{host}_{suffix:016x}"))
    }

    /// Returns the identity as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let is_printable = text.bytes().all(|it| it.is_ascii_graphic());
        if text.is_empty() || text.len() > LIMIT || !is_printable {
            return Err(IdentityError);
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn random_identity_starts_with_the_host_and_is_never_the_same() {
        let [one, other] = [Identity::random(), Identity::random()];
        assert_ne!(one, other);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let expected = format!("{}_", host.trim());
        assert!(one.as_str().starts_with(&expected), "{one:?}");
        assert_eq!(one.as_str().parse(), Ok(one.clone()));
    }

    #[rstest]
    #[case::pod("rt-bootstrapper-controller-6d5f8b7c9-x2x4z", true)]
    #[case::longest(&"a".repeat(128), true)]
    #[case::longer(&"a".repeat(129), false)]
    #[case::empty("", false)]
    #[case::blank("a b", false)]
    #[case::line("a\n", false)]
    #[case::not_ascii("ä", false)]
    fn identity_is_what_a_lease_and_an_event_can_hold(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(text.parse::<Identity>().is_ok(), valid);
    }
}
