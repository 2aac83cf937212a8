//! The flags of a role, given behind `--`: read as the role itself will read them in its Pod, so that a Pod that cannot
//! start is never installed.
//!
//! Invariant: the environment of this process is not looked at; in the Pod it is another one.

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

use super::ValueError;

/// What a role understands of its flags.
pub(super) struct Flags<A> {
    /// With the role's defaults where no flag says otherwise.
    pub(super) arguments: A,
    command: Command,
    matches: ArgMatches,
}

impl<A: Args> Flags<A> {
    /// Reads the flags of a role.
    ///
    /// # Errors
    /// The role would not start with them, or one of them is `reserved`: the manifests set it themselves, and something
    /// else in them (a port, a mount, a Role) depends on it.
    pub(super) fn read(
        role: &'static str,
        flags: &[String],
        reserved: &[&str],
    ) -> Result<Self, clap::Error> {
        let command = Command::new(role).no_binary_name(true);
        let mut command =
            A::augment_args(command).mut_args(|argument| argument.env(Resettable::Reset));
        let matches = command.try_get_matches_from_mut(flags)?;
        let read = Self {
            arguments: A::from_arg_matches(&matches).map_err(|it| it.format(&mut command))?,
            command,
            matches,
        };
        for name in reserved {
            if read.gives(name) {
                let flag = name.replace('_', "-");
                return Err(read.conflict(&format!("--{flag} is set by the manifests")));
            }
        }
        Ok(read)
    }

    /// Whether an argument is among the flags.
    pub(super) fn gives(&self, name: &str) -> bool {
        self.matches.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// Flags that contradict each other.
    pub(super) fn conflict(&self, text: &str) -> clap::Error {
        self.command
            .clone()
            .error(ErrorKind::ArgumentConflict, text)
    }
}

/// One flag: a single word, which a list of arguments can hold.
pub(super) fn flag(text: &str) -> Result<String, FlagError> {
    if !text.starts_with("--") || text.contains(char::is_control) {
        return Err(FlagError::Form);
    }
    Ok(super::whole(text)?)
}

/// Why a text is not a flag.
#[derive(Debug, thiserror::Error)]
pub(super) enum FlagError {
    #[error("not a valid flag: expected one such as `--name=value`")]
    Form,
    #[error(transparent)]
    Value(#[from] ValueError),
}
