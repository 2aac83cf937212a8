//! Value of the flag `--controllers`.
//!
//! Invariant: the grammar is that of `--controllers` of kube-controller-manager: `*` enables all, `NAME` enables one, and
//! `-NAME` disables one. The last item about a controller applies. At least one controller is enabled.

use std::str::FromStr;

/// A controller that can be enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Signals KIM.
    Signal,
    /// Writes to runtimes directly.
    Direct,
    /// Creates VirtualServices for Watchers.
    Watchers,
}

impl Part {
    const ALL: [Self; 3] = [Self::Signal, Self::Direct, Self::Watchers];

    fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Direct => "direct",
            Self::Watchers => "watchers",
        }
    }
}

/// The enabled controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts(Vec<Part>);

impl Parts {
    /// Returns whether a controller is enabled.
    pub(crate) fn contains(&self, part: Part) -> bool {
        self.0.contains(&part)
    }
}

/// Reason why a value of the flag is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PartError {
    #[error("unknown controller {0:?} (known: direct, signal, watchers)")]
    Unknown(String),
    #[error("no controller enabled")]
    Nothing,
}

impl FromStr for Parts {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Self, PartError> {
        let mut chosen = [false; Part::ALL.len()];
        for word in text.split(',').map(str::trim) {
            let (name, on) = match word.strip_prefix('-') {
                Some(name) => (name, false),
                None => (word, true),
            };
            if word == "*" {
                chosen = [true; Part::ALL.len()];
                continue;
            }
            let part = Part::ALL.into_iter().find(|part| part.name() == name);
            let part = part.ok_or_else(|| PartError::Unknown(word.to_owned()))?;
            chosen[part as usize] = on;
        }
        let parts: Vec<Part> = Part::ALL
            .into_iter()
            .filter(|part| chosen[*part as usize])
            .collect();
        if parts.is_empty() {
            return Err(PartError::Nothing);
        }
        Ok(Self(parts))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Part, PartError, Parts};

    #[rstest]
    #[case::one("signal", Ok(vec![Part::Signal]))]
    #[case::all("*", Ok(vec![Part::Signal, Part::Direct, Part::Watchers]))]
    #[case::all_but_one("*,-watchers", Ok(vec![Part::Signal, Part::Direct]))]
    #[case::the_last_word_counts("-direct, *", Ok(vec![Part::Signal, Part::Direct, Part::Watchers]))]
    #[case::unknown("signals", Err(PartError::Unknown("signals".to_owned())))]
    #[case::none_left("signal,-signal", Err(PartError::Nothing))]
    #[case::empty("", Err(PartError::Unknown(String::new())))]
    fn parts_are_chosen(#[case] flag: &str, #[case] expected: Result<Vec<Part>, PartError>) {
        assert_eq!(flag.parse(), expected.map(Parts));
    }
}
