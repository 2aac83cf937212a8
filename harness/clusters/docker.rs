//! Docker commands of the harness, except the start of containers, for which it uses testcontainers.
//!
//! All commands run the `docker` program. Removing an object that does not exist is not an error, so that the end of a run and
//! a sweep may overlap.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// A container or network with a label of the harness.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// ID in Docker.
    pub id: String,
    /// Name in Docker.
    pub name: String,
    /// Labels of the object. The harness uses no values with a comma; such values of others may be truncated.
    pub labels: HashMap<String, String>,
    /// Whether the container runs; absent for a network.
    pub running: Option<bool>,
}

/// Output and exit code of a program.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code of the program.
    pub code: i32,
    /// Standard output of the program.
    pub stdout: String,
    /// Standard error of the program.
    pub stderr: String,
}

pub(crate) async fn image_id(reference: &str) -> anyhow::Result<Option<String>> {
    let id = unless_gone(&["image", "inspect", "--format={{.Id}}", reference]).await?;
    Ok(id.map(|id| id.trim().to_owned()))
}

/// Pushes an image of the daemon to a registry under `name`; `config` is a Docker configuration with the credentials.
pub(crate) async fn push(image: &str, name: &str, config: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("config.json"), config)?;
    let folder = format!("--config={}", folder.path().display());
    must(&["tag", image, name]).await?;
    let pushed = must(&[&folder, "push", "--quiet", name]).await;
    // This removes only the name, because the image has another one.
    unless_gone(&["image", "rm", name]).await?;
    pushed.map(drop)
}

/// Returns containers with the label `key`, including stopped ones, and then networks.
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

/// Creates a bridge network. The daemon accepts a `bridge` name only once, even from concurrent clients, but the name of a
/// network several times.
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

/// Removes a network, or a container with its anonymous volumes without waiting for its end.
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

/// Runs the `docker` program and returns its standard output, or `None` if the object does not exist or is being removed.
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

/// Runs the `docker` program to its end. The exit code is that of the program in the container.
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

/// Runs the `docker` program to its end. An exit code other than 0 is an error.
pub(crate) async fn must(args: &[&str]) -> anyhow::Result<Output> {
    let output = run(args).await?;
    let Output { code, stderr, .. } = &output;
    ensure!(*code == 0, "docker {args:?} ended with {code}: {stderr}");
    Ok(output)
}

/// Time limit of a command. The longest command imports an image into a busy node.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// Returns the `docker` program that supports BuildKit. Debian's is preferred, because a newer one on the PATH may lack the
/// buildx plugin.
pub(crate) fn program() -> &'static str {
    let debian = "/usr/bin/docker";
    if Path::new(debian).exists() {
        debian
    } else {
        "docker"
    }
}
