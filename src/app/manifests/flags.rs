//! Flags of a component after `--`. They are parsed in the same way as in the Pod of the component, so that no Pod is
//! installed that cannot start.
//!
//! Invariant: the environment of this process is ignored, because the environment of the Pod differs.

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

/// Parsed flags of a component.
pub(super) struct Flags<A> {
    /// The arguments, with the defaults of the component for missing flags.
    pub(super) arguments: A,
    command: Command,
    matches: ArgMatches,
}

impl<A: Args> Flags<A> {
    /// Parses the flags of a component.
    ///
    /// # Errors
    /// The component would not start with the flags, or one of the flags is `reserved`: the manifests set it themselves, and
    /// another part of the manifests (a port, a mount, a Role) depends on it.
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

    /// Returns whether an argument is set by a flag.
    pub(super) fn gives(&self, name: &str) -> bool {
        self.matches.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// Returns an error about contradictory flags.
    pub(super) fn conflict(&self, text: &str) -> clap::Error {
        self.command
            .clone()
            .error(ErrorKind::ArgumentConflict, text)
    }
}

/// Parses one flag: a single word that is valid in a list of arguments.
pub(super) fn flag(text: &str) -> Result<String, &'static str> {
    if !text.starts_with("--") || text.contains(char::is_control) {
        return Err("not a valid flag: expected one such as `--name=value`");
    }
    super::whole(text)
}
