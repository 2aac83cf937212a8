//! The command line: one subcommand per component or tool, each with its arguments in a module.

pub(crate) mod controller;
pub(crate) mod process;
pub(crate) mod selector;
pub(crate) mod values;
pub(crate) mod watcher;
pub(crate) mod webhook;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::compose;
use crate::crds::{self, CrdsArgs};
use crate::manifests::{self, ManifestsArgs};
use crate::plan::{self, PlanArgs};
use crate::preview::{self, PreviewArgs};
use crate::schema;

/// Pod-mutating webhook, KCP controller and watcher for Kyma runtimes
#[derive(Debug, Parser)]
#[command(name = "runtime-bootstrapper", version)]
pub(crate) struct Cli {
    /// Subcommand to run.
    #[command(subcommand)]
    pub(crate) role: Role,
}

/// Subcommands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Run the mutating webhook (on a runtime)
    Webhook(Box<webhook::WebhookArgs>),
    /// Run the controller (on KCP)
    Controller(Box<controller::ControllerArgs>),
    /// Run the watcher (on a runtime)
    Watcher(Box<watcher::WatcherArgs>),
    /// Show how the webhook would mutate Pods, offline
    Preview(PreviewArgs),
    /// Show what the controller would write on a runtime; writes nothing
    Plan(Box<PlanArgs>),
    /// Print installation manifests
    Manifests(ManifestsArgs),
    /// Print the CustomResourceDefinitions
    Crds(CrdsArgs),
    /// Print the JSON Schema of the webhook's configuration document, for editors
    Schema,
}

impl Cli {
    /// Reads the command line. `watcher -version`, with the single dash of Go, is accepted as in the public watcher.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments: Vec<OsString> = arguments.into_iter().collect();
        if let [_, role, version] = &mut arguments[..]
            && *role == "watcher"
            && *version == "-version"
        {
            *version = "--version".into();
        }
        Self::parse_from(arguments)
    }
}

impl Role {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The error that ends the subcommand. The caller prints it.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Webhook(arguments) => compose::webhook::run(&arguments),
            Self::Controller(arguments) => compose::controller::run(&arguments),
            Self::Watcher(arguments) => compose::watcher::run(&arguments),
            Self::Preview(arguments) => Ok(preview::run(&arguments)),
            Self::Plan(arguments) => plan::run(&arguments),
            Self::Manifests(arguments) => manifests::run(&arguments),
            Self::Crds(arguments) => Ok(crds::run(&arguments)?),
            Self::Schema => Ok(schema::run()?),
        }
    }
}
