//! The command line: one subcommand a role, each with its arguments in its own module.

pub(crate) mod controller;
mod selector;
pub(crate) mod values;
pub(crate) mod watcher;
pub(crate) mod webhook;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::compose;
use crate::crds;
use crate::manifests::{self, ManifestsArgs};
use crate::preview::{self, PreviewArgs};

/// Fits Pods to their landscape.
#[derive(Debug, Parser)]
#[command(name = "runtime-bootstrapper", version)]
pub(crate) struct Cli {
    /// What the process is.
    #[command(subcommand)]
    pub(crate) role: Role,
}

/// What the process is.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Change Pods at admission, on an SKR
    Webhook(Box<webhook::WebhookArgs>),
    /// Keep the webhook and its configuration in step on every runtime, on KCP
    Controller(Box<controller::ControllerArgs>),
    /// Tell KCP of changes, on an SKR
    Watcher(Box<watcher::WatcherArgs>),
    /// Show, without a cluster, what the webhook would do to the Pods of some manifests, and why
    Preview(PreviewArgs),
    /// Print what `kubectl apply -f -` needs to install a role
    Manifests(ManifestsArgs),
    /// Print the custom resource definitions that KCP needs
    Crds,
}

impl Cli {
    /// Reads the command line, which is not ours alone: scripts ask the public watcher with Go's single dash.
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
    /// Runs the role to its end.
    ///
    /// # Errors
    /// Whatever the role could not cope with; the edge prints it.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Webhook(arguments) => compose::webhook::run(&arguments),
            Self::Controller(arguments) => compose::controller::run(&arguments),
            Self::Watcher(arguments) => compose::watcher::run(&arguments),
            Self::Preview(arguments) => Ok(preview::run(&arguments)),
            Self::Manifests(arguments) => manifests::run(&arguments),
            Self::Crds => Ok(crds::run()?),
        }
    }
}
