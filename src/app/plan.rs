//! Subcommand `plan`: prints what the controller would write on a runtime, and why. Writes nothing.
//!
//! The decision is the same as in the controller (`controller::direct::plan_runtime`). It depends on the flags, which are
//! those of the controller.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use api::kcp::KCP_NAMESPACE;
use clap::{Args, ValueEnum};
use component_base::client::{RequestMetrics, connect};
use component_base::metrics::Metrics;
use controller::clients::{ClientMetrics, ClientOptions, RuntimeClients};
use controller::direct::{DirectSettings, PlanOptions, RuntimePlan, plan_runtime};
use kube::core::Selector;

use crate::cli::controller::{SourceArgs, WebhookDefaults};
use crate::cli::selector::selector;
use crate::cli::values;
use crate::compose::controller::{NAME, settings};
use crate::compose::{build_info, client_options};
use crate::edge;

mod render;

/// Exit code if the controller would write something. It differs from a failure (1) and a usage error (2).
const WOULD_WRITE: u8 = 3;

const NOTES: &str = "\
The flags that decide must be those of the controller. The command only reads: KCP, and the runtime with its kubeconfig. On
the runtime it also creates SelfSubjectRulesReviews and SelfSubjectAccessReviews, which store nothing. Contents of objects
are not printed; fields that differ are named. Whether a rollout delays the writes is known to the leader only.

Exit codes: 0 nothing to write; 1 failure, or the runtime cannot be reached or must not be written to; 2 wrong usage; 3
something would be written, also if it waits.";

/// Arguments of `plan`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct PlanArgs {
    /// Name of the Runtime
    #[arg(value_name = "RUNTIME", value_parser = values::object_name)]
    runtime: String,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Namespace of the sources, Runtimes and kubeconfigs on KCP
    #[arg(short, long, env = "POD_NAMESPACE", default_value = KCP_NAMESPACE, value_parser = values::namespace)]
    namespace: String,
    #[command(flatten)]
    sources: SourceArgs,
    /// Label selector of the Runtimes for which a RuntimeBootstrapper is created. If empty, all
    #[arg(
        long,
        default_value = "rt-bootstrapper.kyma-project.io/mode=direct",
        value_parser = selector
    )]
    direct_selector: Selector,
    #[command(flatten)]
    webhook: WebhookDefaults,
    /// Accept loopback addresses in kubeconfigs; for tests and local clusters only
    #[arg(long)]
    allow_loopback_runtimes: bool,
    /// Path of a kubeconfig of KCP, or of several as in KUBECONFIG of kubectl. If unset, the service account of the Pod is used
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

/// Format of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Steps, reasons and conditions as text
    Text,
    /// Steps, reasons and conditions as JSON
    Json,
}

/// Reads the state, decides, and prints the plan.
///
/// # Errors
/// The required objects cannot be read from KCP, or the output cannot be written.
pub(crate) fn run(arguments: &PlanArgs) -> anyhow::Result<ExitCode> {
    let plan = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime of this process")?
        .block_on(plan(arguments))?;
    let text = match arguments.output {
        Output::Text => render::text(&plan),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&plan)?),
    };
    edge::write_out(&text).context("failed to write the result")?;
    Ok(if plan.blocked.is_some() {
        ExitCode::FAILURE
    } else if plan.writes() {
        ExitCode::from(WOULD_WRITE)
    } else if plan.is_blocked() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

async fn plan(arguments: &PlanArgs) -> anyhow::Result<RuntimePlan> {
    let installations = settings::installations(&arguments.sources, &arguments.webhook)?;
    let options = client_options(NAME, arguments.kubeconfig.clone());
    let client = connect(options, &RequestMetrics::default()).await?;
    // This registry is not exposed.
    let mut metrics = Metrics::new("plan", build_info());
    let fleet = ClientOptions {
        allow_loopback: arguments.allow_loopback_runtimes,
        ..ClientOptions::default()
    };
    let options = PlanOptions {
        client,
        settings: DirectSettings {
            namespace: arguments.namespace.clone(),
            names: settings::names(&arguments.sources),
            adopt: arguments.direct_selector.clone(),
            deletion_grace: arguments.sources.deletion_grace_period,
            ..DirectSettings::default()
        },
        sources: settings::sources(&arguments.namespace, &arguments.sources),
        fleet: RuntimeClients::new(fleet, ClientMetrics::register(metrics.registry())),
        installations,
    };
    Ok(plan_runtime(options, &arguments.runtime).await?)
}
