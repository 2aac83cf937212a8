//! What the harness asks of Docker beside starting containers, which testcontainers does.
//!
//! All goes through the `docker` program. Removing what is gone already is no error, so that teardown and sweep may overlap.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// A container or network that a run made.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// Docker's ID.
    pub id: String,
    /// Docker's name.
    pub name: String,
    /// Its labels. Values with a comma are not those of the harness, and may be cut off.
    pub labels: HashMap<String, String>,
    /// Whether it is a container that runs; absent for a network.
    pub running: Option<bool>,
}

/// What a program in a container wrote, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

pub(crate) async fn image_id(reference: &str) -> anyhow::Result<Option<String>> {
    let id = unless_gone(&["image", "inspect", "--format={{.Id}}", reference]).await?;
    Ok(id.map(|id| id.trim().to_owned()))
}

/// Pushes an image of the daemon under a name of a registry; `config` is the configuration with the credentials.
pub(crate) async fn push(image: &str, name: &str, config: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("config.json"), config)?;
    let folder = format!("--config={}", folder.path().display());
    must(&["tag", image, name]).await?;
    let pushed = must(&[&folder, "push", "--quiet", name]).await;
    // Only the name: the image has another one.
    unless_gone(&["image", "rm", name]).await?;
    pushed.map(drop)
}

/// Containers that carry the label `key`, stopped ones too, and then networks.
pub(crate) async fn labelled(key: &str) -> anyhow::Result<Vec<Labelled>> {
    let options = ["--no-trunc", "--format={{json .}}", "--filter"];
    let filter = format!("label={key}");
    let list = async |list: &[&str]| must(&[list, &options, &[&filter]].concat()).await;
    let mut lines = list(&["container", "ls", "--all"]).await?.stdout;
    lines += &list(&["network", "ls"]).await?.stdout;
    let found = lines.lines().map(|line| {
        let found: Value = serde_json::from_str(line)?;
        let text = |field: &str| found[field].as_str().unwrap_or_default();
        let labels = text("Labels").split(',');
        let labels = labels.filter_map(|it| it.split_once('='));
        Ok(Labelled {
            id: text("ID").to_owned(),
            name: [text("Names"), text("Name")].concat(),
            labels: labels.map(|(key, it)| (key.into(), it.into())).collect(),
            running: found["State"].as_str().map(|state| state == "running"),
        })
    });
    found.collect()
}

/// Creates a bridge network. Where `bridge` names its bridge, the daemon accepts that name once, whichever clients ask
/// at the same time; the name of a network it accepts several times.
pub(crate) async fn create_network(
    name: &str,
    bridge: Option<&str>,
    labels: &HashMap<String, String>,
) -> anyhow::Result<()> {
    let labels = labels
        .iter()
        .map(|(key, value)| format!("--label={key}={value}"));
    let bridge = bridge.map(|it| format!("--opt=com.docker.network.bridge.name={it}"));
    let options: Vec<String> = labels.chain(bridge).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let create = ["network", "create", "--driver=bridge", name];
    must(&[&create, options.as_slice()].concat())
        .await
        .map(drop)
}

/// Removes a container at once, with its anonymous volumes, or a network.
pub(crate) async fn remove(it: &Labelled) -> anyhow::Result<()> {
    match it.running {
        Some(_) => remove_container(&it.id).await,
        None => unless_gone(&["network", "rm", &it.id]).await.map(drop),
    }
}

pub(crate) async fn remove_container(id: &str) -> anyhow::Result<()> {
    let remove = ["container", "rm", "--force", "--volumes", id];
    unless_gone(&remove).await.map(drop)
}

/// What the `docker` program writes about something; `None` if that is gone, or is being removed at this moment.
async fn unless_gone(args: &[&str]) -> anyhow::Result<Option<String>> {
    let ended = run(args).await?;
    let (code, stderr) = (ended.code, ended.stderr);
    let gone = ["No such", "no such", "not found", "already in progress"];
    let is_gone = code != 0 && gone.iter().any(|it| stderr.contains(it));
    ensure!(
        code == 0 || is_gone,
        "docker {args:?} ended with {code}: {stderr}"
    );
    Ok((!is_gone).then_some(ended.stdout))
}

/// Runs the `docker` program to its end; what the program in a container returns is the exit code.
pub(crate) async fn run(args: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let Ok(ended) = timeout(TIME_LIMIT, command.output()).await else {
        bail!("docker {args:?}: no end within {TIME_LIMIT:?}");
    };
    let ended = ended.context("run docker")?;
    Ok(Output {
        code: ended.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&ended.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
    })
}

/// The same, where another exit code than 0 is an error.
pub(crate) async fn must(args: &[&str]) -> anyhow::Result<Output> {
    let output = run(args).await?;
    let Output { code, stderr, .. } = &output;
    ensure!(*code == 0, "docker {args:?} ended with {code}: {stderr}");
    Ok(output)
}

/// The longest program in a container imports an image into a busy node.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// The `docker` program that can use BuildKit: Debian's, where a newer one on the PATH may lack its buildx plugin.
pub(crate) fn program() -> &'static str {
    let debian = "/usr/bin/docker";
    if Path::new(debian).exists() {
        debian
    } else {
        "docker"
    }
}
