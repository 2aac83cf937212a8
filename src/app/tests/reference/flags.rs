//! Page `flags`: each flag of each subcommand, from the definitions of clap.

use clap::{Arg, Command, CommandFactory as _};

use super::{code, heading, table};
use crate::cli::Cli;

/// Returns the page.
pub(super) fn page() -> String {
    let mut root = Cli::command();
    // Without this call, flags that clap adds are missing.
    root.build();
    let mut text = heading(
        "Flags",
        "Flags and environment variables of `runtime-bootstrapper`. A flag takes precedence over its variable, and a variable \
         over the default. Every command has `--help`.",
    );
    section(&root, &mut text);
    text
}

/// Adds the section of a command with an action, and those of its subcommands.
fn section(command: &Command, text: &mut String) {
    for inner in command
        .get_subcommands()
        .filter(|it| it.get_name() != "help")
    {
        if !inner.has_subcommands() {
            let name = inner.get_bin_name().unwrap_or(inner.get_name());
            let about = inner
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            text.extend([format!("\n## {name}\n\n{}\n", sentence(&about))]);
            text.push_str(&arguments(inner));
        }
        section(inner, text);
    }
}

fn arguments(command: &Command) -> String {
    let rows: Vec<Vec<String>> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && argument.get_id() != "help")
        .map(row)
        .collect();
    if rows.is_empty() {
        return "\nNo flags.\n".to_owned();
    }
    table(&["flag", "variable", "default", "meaning"], &rows)
}

fn row(argument: &Arg) -> Vec<String> {
    let variable = argument
        .get_env()
        .map(|it| it.to_string_lossy().into_owned());
    let takes_value = argument.get_action().takes_values();
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .filter(|_| takes_value)
        .map(|it| it.to_string_lossy().into_owned())
        .collect();
    vec![
        code(&name(argument)),
        code(&variable.unwrap_or_default()),
        if argument.is_required_set() {
            "required".to_owned()
        } else {
            code(&defaults.join(","))
        },
        meaning(argument),
    ]
}

/// Returns the flag, or the placeholder of a positional argument.
fn name(argument: &Arg) -> String {
    if let Some(long) = argument.get_long() {
        return format!("--{long}");
    }
    let names = argument.get_value_names().unwrap_or_default();
    let name = names
        .first()
        .map_or(argument.get_id().as_str(), |it| it.as_str());
    if argument.is_last_set() {
        format!("-- {name}…")
    } else {
        name.to_owned()
    }
}

/// Returns the help text, with the values if there are few.
fn meaning(argument: &Arg) -> String {
    let help = argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}`: {help}", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if values.is_empty() {
        return help;
    }
    format!("{} Values: {}", sentence(&help), values.join("; "))
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}
