//! `cargo harness conformance`: checks clusters against a scenario file. Without kubeconfigs it starts local clusters, of which
//! the checks also get only the kubeconfigs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use conformance::{
    Check, Endpoint, Installation, KCP, Options, Report, Run, Scenario, Verdict, line,
};

use clusters::cluster::ProviderChoice;
use clusters::images::{self, Profile};
use clusters::run::{INTERRUPTED, interrupted};
use clusters::setup;
use clusters::workspace;
use e2e::install;
use e2e::landscape::shown;
use e2e::local::Local;

/// Exit codes: 0 every check passed, 1 the run or its cleanup failed, 2 wrong usage, 3 a check failed or was not run, 130
/// interrupted.
#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// Scenario file, such as scenarios/eu-sovereign.yaml.
    scenario: PathBuf,
    /// Kubeconfig of a runtime, in the order of the scenario; may be repeated. Without this option local clusters are started.
    #[arg(long, value_name = "KUBECONFIG")]
    skr: Vec<PathBuf>,
    /// Kubeconfig of the control plane.
    #[arg(long, value_name = "KUBECONFIG", requires = "skr")]
    kcp: Option<PathBuf>,
    /// Print every request that the run may send, and send none.
    #[arg(long, requires = "skr")]
    dry_run: bool,
    /// Leave out checks of metrics, version and warnings of this project's components, to check another implementation.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Install the webhook and the landscape's configuration for the duration of the run. Fails if any of their objects exists, or if
    /// the scenario has controlPlane or events.
    #[arg(long, requires = "skr", requires = "image", conflicts_with = "kcp")]
    install: bool,
    /// Image of the webhook for --install.
    #[arg(long, value_name = "REFERENCE")]
    image: Option<String>,
    /// File with the docker configuration of the pull Secret for --install.
    #[arg(long, value_name = "FILE", requires = "install")]
    docker_config: Option<PathBuf>,
    /// File with the certificates of the ClusterTrustBundle for --install, in PEM.
    #[arg(long, value_name = "FILE", requires = "install")]
    trust_bundle: Option<PathBuf>,
    /// Time limit for an expected state on a cluster, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Folder of report.html, report.json and junit.xml; the default is below target/harness/conformance.
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// Leave local clusters running; the next run uses them.
    #[arg(long, conflicts_with = "skr")]
    keep: bool,
    /// Image that runs local clusters; the default is the choice of the set-up.
    #[arg(long, value_enum, conflicts_with = "skr")]
    cluster: Option<ProviderChoice>,
}

/// Selection of checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Checks that read only objects.
    Contract,
}

impl ConformanceArgs {
    /// Whether the clusters are not local. Then an interrupted run removes its own objects.
    pub(crate) fn is_foreign(&self) -> bool {
        !self.skr.is_empty()
    }

    fn options(&self) -> Options {
        Options {
            only_contract: self.only == Some(Only::Contract),
            patience: Duration::from_secs(self.timeout),
        }
    }
}

pub(crate) async fn run(arguments: ConformanceArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&arguments.scenario)?;
    if arguments.is_foreign() {
        let (kcp, runtimes) = (arguments.kcp.as_deref(), &arguments.skr[..]);
        return check(&arguments, &scenario, kcp, runtimes).await;
    }
    let setup = setup::run_with_product(arguments.cluster).await?;
    let local = Box::pin(Local::start(&setup, arguments.keep, &scenario)).await?;
    let checked = check(&arguments, &scenario, local.kcp.as_deref(), &local.runtimes).await;
    let stopped = Box::pin(local.stop()).await;
    let code = checked?;
    stopped.map(|()| code)
}

async fn check(
    arguments: &ConformanceArgs,
    scenario: &Scenario,
    kcp: Option<&Path>,
    runtimes: &[PathBuf],
) -> Result<ExitCode> {
    let mut endpoints = Vec::new();
    for (number, file) in runtimes.iter().enumerate() {
        let name = scenario.runtimes().nth(number).unwrap_or("skr");
        endpoints.push(Endpoint::of_file(name, file).await?);
    }
    let kcp = match kcp {
        Some(file) => Some(Endpoint::of_file(KCP, file).await?),
        None => None,
    };
    let mut run = Run::new(scenario, kcp, endpoints, arguments.options())?;
    if arguments.install {
        run = run.with_installation(installation(arguments, scenario).await?)?;
    }
    if arguments.dry_run {
        for (cluster, requests) in run.requests() {
            anstream::println!("# {cluster}");
            for request in requests {
                anstream::println!("{request}");
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let is_interrupted = AtomicBool::new(false);
    let interrupt = async {
        interrupted().await;
        is_interrupted.store(true, Ordering::Relaxed);
        anstream::eprintln!("interrupted: removing what this run made");
    };
    let said = |check: &Check| anstream::println!("{}", line(check));
    let report = match run.run(interrupt, &said).await {
        Err(error) if is_interrupted.load(Ordering::Relaxed) => {
            anstream::eprintln!("{error:#}");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        other => other?,
    };
    finish(arguments, &report)
}

fn finish(arguments: &ConformanceArgs, report: &Report) -> Result<ExitCode> {
    let folder = workspace::state()
        .join("conformance")
        .join(&report.scenario);
    let folder = arguments.report.clone().unwrap_or(folder);
    report.write(&folder)?;
    anstream::println!("{}", report.summary());
    anstream::println!("report: {}", shown(&folder.join("report.html")));
    Ok(match report.verdict() {
        Verdict::Conforms => ExitCode::SUCCESS,
        Verdict::Differs => ExitCode::from(DIFFERS),
    })
}

/// Returns the configuration of the landscape, and the manifests that the product prints.
async fn installation(arguments: &ConformanceArgs, scenario: &Scenario) -> Result<Installation> {
    let read = |file: &Option<PathBuf>, option: &str, is_needed: bool| match file {
        Some(file) => std::fs::read_to_string(file).with_context(|| file.display().to_string()),
        None if is_needed => anyhow::bail!("the scenario has what only {option} can give"),
        None => Ok(String::new()),
    };
    let landscape = &scenario.landscape;
    let docker_config = read(
        &arguments.docker_config,
        "--docker-config",
        landscape.pull_secret.is_some(),
    )?;
    let pem = read(
        &arguments.trust_bundle,
        "--trust-bundle",
        landscape.trust.is_some(),
    )?;
    let mut objects =
        conformance::objects::objects(landscape, api::names::SKR_NAMESPACE, &docker_config, &pem)?;
    images::binary(Profile::E2e).await?;
    let image = arguments.image.as_deref().unwrap_or_default();
    objects.extend(install::webhook(image, &[]).await?);
    Ok(Installation::new(objects))
}

/// Exit code if a check failed or was not run.
const DIFFERS: u8 = 3;
