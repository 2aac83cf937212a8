//! Value of the flag `--controllers`.
//!
//! Invariant: the grammar is that of `--controllers` of kube-controller-manager: `*` enables all, `NAME` enables one, and
//! `-NAME` disables one. The last item about a controller applies. At least one controller is enabled.

use std::str::FromStr;

use clap::ValueEnum;

/// A controller that can be enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Signals KIM.
    Signal,
    /// Writes to runtimes directly.
    Direct,
    /// Creates VirtualServices for Watchers.
    Watchers,
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
        let mut chosen: Vec<Part> = Vec::new();
        for word in text.split(',').map(str::trim) {
            let (name, on) = match word.strip_prefix('-') {
                Some(name) => (name, false),
                None => (word, true),
            };
            if word == "*" {
                chosen = Part::value_variants().to_vec();
                continue;
            }
            let part = <Part as ValueEnum>::from_str(name, false);
            let part = part.map_err(|_| PartError::Unknown(word.to_owned()))?;
            chosen.retain(|it| *it != part);
            chosen.extend(on.then_some(part));
        }
        if chosen.is_empty() {
            return Err(PartError::Nothing);
        }
        Ok(Self(chosen))
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
