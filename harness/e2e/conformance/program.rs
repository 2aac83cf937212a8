//! `cargo harness conformance` as a process that inherits nothing from this process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::kcp::WEBHOOK_DEPLOYMENT;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testkit::until::until;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::runner::root;
use clusters::{progress, workspace};
use testkit::client::Client;

/// Path of the built program.
pub(crate) struct Program(PathBuf);

/// Arguments of one call of the program.
#[derive(Default)]
pub(crate) struct Call<'a> {
    pub(crate) scenario: &'a str,
    /// Kubeconfig of KCP, if the scenario has one.
    pub(crate) kcp: Option<&'a str>,
    /// Kubeconfigs of the runtimes.
    pub(crate) runtimes: &'a [&'a str],
    pub(crate) options: &'a [String],
    pub(crate) interrupt: Option<(Client, Interrupt)>,
}

/// Time at which the process receives SIGINT.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Interrupt {
    /// When a Namespace of the run exists.
    Namespace,
    /// When the Deployment of the webhook exists.
    Deployment,
}

/// Output of a process that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    /// Standard output and standard error.
    pub(crate) output: String,
    /// Reports by file name.
    pub(crate) reports: BTreeMap<String, String>,
}

impl Program {
    /// Builds the program with the command of the README, so that nothing is compiled twice.
    pub(crate) async fn build() -> Result<Self> {
        let mut cargo = workspace::cargo();
        cargo.args(["build", "--package", "harness", "--bin", "harness"]);
        progress::run("build the program", &mut cargo).await?;
        Ok(Self(workspace::target().join("debug/harness")))
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, call: Call<'_>) -> Result<Ended> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str| folder.path().join(name);
        let output = std::fs::File::create(file("output"))?;
        let mut command = Command::new(&self.0);
        command.arg("conformance").arg(root().join(call.scenario));
        command.args(["--report", "report"]);
        let runtimes = call.runtimes.iter().map(|it| ("--skr", *it));
        let all = call.kcp.map(|it| ("--kcp", it)).into_iter().chain(runtimes);
        for (number, (option, kubeconfig)) in all.enumerate() {
            let name = format!("kubeconfig-{number}");
            std::fs::write(file(&name), kubeconfig)?;
            command.args([option, &name]);
        }
        command.args(call.options).current_dir(folder.path());
        command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
        if call.options.iter().any(|it| it == "--install") {
            // The program prints the manifests with the product's binary, which cargo builds.
            let names = ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME"];
            command.envs(
                names
                    .iter()
                    .filter_map(|it| Some((it, std::env::var_os(it)?))),
            );
        }
        command.stdout(output.try_clone()?).stderr(output);
        let before = match &call.interrupt {
            Some((client, interrupt)) => interrupt.objects(client).await?,
            None => 0,
        };
        let mut child = command.spawn().context("the program cannot be run")?;
        if let Some((client, interrupt)) = call.interrupt {
            interrupt.send(&client, before, &mut child).await?;
        }
        let status = timeout(TIME_LIMIT, child.wait()).await;
        let output = std::fs::read_to_string(file("output"))?;
        let status =
            status.with_context(|| format!("it still runs after {TIME_LIMIT:?}:\n{output}"))??;
        let mut reports = BTreeMap::new();
        for entry in std::fs::read_dir(file("report")).into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            reports.insert(name, std::fs::read_to_string(entry.path())?);
        }
        Ok(Ended {
            code: status
                .code()
                .with_context(|| format!("{status}:\n{output}"))?,
            output,
            reports,
        })
    }
}

impl Interrupt {
    /// Returns the number of objects for whose creation the interrupt waits.
    async fn objects(self, client: &Client) -> Result<usize> {
        let path = match self {
            Self::Namespace => format!("/api/v1/namespaces?labelSelector={RUN_LABEL}"),
            Self::Deployment => {
                format!(
                    "/apis/apps/v1/deployments?fieldSelector=metadata.name%3D{WEBHOOK_DEPLOYMENT}"
                )
            }
        };
        Ok(client.items(&path).await?.len())
    }

    /// Waits until there are more objects than `before`. Fails if the process has ended before.
    async fn send(self, client: &Client, before: usize, child: &mut Child) -> Result<()> {
        let is_made = async || {
            let now = self.objects(client).await?;
            ensure!(now > before, "{now} objects as before");
            Ok::<_, anyhow::Error>(())
        };
        until("the run makes an object", TIME_LIMIT, is_made).await?;
        if let Some(status) = child.try_wait()? {
            bail!("it had ended before it could be interrupted: {status}");
        }
        let pid = child.id().context("it has no process ID")?.to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().await?;
        ensure!(sent.success(), "kill -INT {pid}: {sent}");
        Ok(())
    }
}

impl Ended {
    /// Returns the JSON report.
    pub(crate) fn report(&self) -> Result<Value> {
        let text = self.reports.get("report.json");
        let text = text.with_context(|| format!("no report.json:\n{}", self.output))?;
        Ok(serde_json::from_str(text)?)
    }
}

/// Time limit of a run: twice the duration of a failing check.
const TIME_LIMIT: Duration = Duration::from_mins(4);
/// Label of the namespaces of a run, as in `docs/scenarios.md`.
const RUN_LABEL: &str = "rt-bootstrapper.kyma-project.io/conformance-run";
