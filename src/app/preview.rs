//! Subcommand `preview`: prints how the webhook would change the Pods of manifests, and why, without a cluster.
//!
//! Invariant: the decision is the same as in the webhook (`policy::admission::decide` on a review that is parsed in the
//! same way), and an invalid input results in an empty standard output.
//!
//! Unknown information is always assumed in the same way: the ClusterTrustBundle exists, the pull Secret is unknown unless
//! `--pull-secret` contains it, and a Namespace without a manifest exists without annotations. Deliberately absent: a
//! cluster client, and the decisions that only UPDATE gets (each Pod counts as newly created).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use policy::admission::{Configuration, PullSecret};

use crate::cli::values;
use crate::edge;

mod configuration;
mod document;
mod error;
mod input;
mod judgement;
mod manifest;
mod near_miss;
mod pull_secret;
mod render;

use error::Errors;
use input::Input;
use manifest::Manifests;
use render::Report;

/// Exit code of `--exit-code`. It differs from a failure (1) and a usage error (2).
const WOULD_CHANGE: u8 = 3;

/// Help text about the assumptions of an offline run.
const ASSUMPTIONS: &str = "\
An offline run knows less than the webhook. It takes the ClusterTrustBundle as present, the pull Secret as unknown
unless --pull-secret shows it, and a Namespace that no MANIFEST describes as one without annotations and labels. Every
Pod is taken as newly created.

Exit codes: 0; 1 invalid input; 2 wrong usage; 3 with --exit-code, if a Pod would be changed.";

/// Arguments of `preview`.
#[derive(Args, Debug)]
#[command(after_help = ASSUMPTIONS)]
pub(crate) struct PreviewArgs {
    /// Configuration: the JSON document, or the ConfigMap that contains it
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Pull Secret: a manifest, or the docker config JSON; without it every Pod that opts in gets the entry
    #[arg(long, value_name = "FILE")]
    pull_secret: Option<PathBuf>,
    /// Name of the landscape, as --landscape of the webhook
    #[arg(long, value_name = "NAME")]
    landscape: Option<String>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t = Output::Diff)]
    output: Output,
    /// Namespace of manifests without a namespace
    #[arg(short, long, value_name = "NAME", value_parser = values::namespace, default_value = "default")]
    namespace: String,
    /// Exit with 3 if a Pod would be changed
    #[arg(long)]
    exit_code: bool,
    /// File, directory or - with manifests, as MANIFEST; may be repeated
    #[arg(
        short,
        long,
        value_name = "MANIFEST",
        required_unless_present = "manifests"
    )]
    filename: Vec<PathBuf>,
    /// File of YAML or JSON objects, directory with files *.yaml, *.yml and *.json, or - for standard input: Pods,
    /// workloads with a Pod template, Namespaces
    #[arg(value_name = "MANIFEST")]
    manifests: Vec<PathBuf>,
}

/// Format of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A unified diff per Pod, preceded by the reasons
    Diff,
    /// The Pods as they would be admitted
    Yaml,
    /// All information as JSON
    Json,
}

/// Reads the inputs, decides, and prints the result. If an input is invalid, only the errors of all inputs are printed.
pub(crate) fn run(arguments: &PreviewArgs) -> ExitCode {
    preview(arguments).unwrap_or_else(Errors::report)
}

fn preview(arguments: &PreviewArgs) -> Result<ExitCode, Errors> {
    let report = gather_and_judge(arguments)?;
    let text = match arguments.output {
        Output::Diff => render::diff(&report, render::Palette::of_this_terminal())?,
        Output::Yaml => render::yaml(&report)?,
        Output::Json => render::json(&report)?,
    };
    edge::write_out(&text).context("standard output cannot be written")?;
    let changed = report.verdicts.iter().any(|it| it.changed);
    Ok(if arguments.exit_code && changed {
        ExitCode::from(WOULD_CHANGE)
    } else {
        ExitCode::SUCCESS
    })
}

fn gather_and_judge(arguments: &PreviewArgs) -> Result<Report, Errors> {
    let mut errors = Errors::default();
    let configuration = errors.keep(configuration(arguments));
    let pull_secret = errors.keep(pull_secret(arguments, configuration.as_ref()));
    let manifests = errors.keep(manifests(arguments));
    let inputs = configuration.zip(pull_secret).zip(manifests);
    let ((configuration, pull_secret), manifests) = errors.none_or(inputs)?;
    let landscape = judgement::Landscape {
        configuration: &configuration,
        pull_secret: &pull_secret,
        namespaces: &manifests.namespaces,
    };
    let verdicts = judgement::judge(&manifests.workloads, &landscape)?;
    Ok(Report {
        verdicts,
        skipped: manifests.skipped,
    })
}

fn configuration(arguments: &PreviewArgs) -> anyhow::Result<Configuration> {
    let input = Input::read(&arguments.config)?;
    let configuration = configuration::read(&input, arguments.landscape.as_deref())?;
    for notice in configuration.notices() {
        edge::warn(&format!("{}: {notice}", input.name()));
    }
    Ok(configuration)
}

/// Returns the pull Secret, and prints a warning if it is not the Secret of the configuration.
fn pull_secret(
    arguments: &PreviewArgs,
    configuration: Option<&Configuration>,
) -> anyhow::Result<PullSecret> {
    let Some(path) = &arguments.pull_secret else {
        return Ok(PullSecret::Unknown);
    };
    let input = Input::read(path)?;
    let (secret, name) = pull_secret::read(&input)?;
    if let Some((name, configuration)) = name.zip(configuration)
        && name != configuration.pull_secret().name
    {
        edge::warn(&format!(
            "{}: Secret {name}: the configuration names {}",
            input.name(),
            configuration.pull_secret().name
        ));
    }
    Ok(secret)
}

fn manifests(arguments: &PreviewArgs) -> Result<Manifests, Errors> {
    let mut errors = Errors::default();
    let mut files = Vec::new();
    for path in arguments.filename.iter().chain(&arguments.manifests) {
        files.extend(errors.keep(input::files(path)).unwrap_or_default());
    }
    if files.iter().filter(|it| input::is_standard(it)).count() > 1 {
        return Err(anyhow::anyhow!("-: standard input can be read only once").into());
    }
    let mut manifests = Manifests::new(&arguments.namespace);
    for file in &files {
        if let Some(input) = errors.keep(Input::read(file)) {
            errors.keep(manifests.read(&input));
        }
    }
    errors.none_or(Some(manifests))
}
