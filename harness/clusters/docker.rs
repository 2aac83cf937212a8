//! The few things that the harness asks of Docker beside what testcontainers does.
//!
//! Invariant: a handle holds no container; whatever is made here carries a label of [`crate::run`], so that a sweep
//! finds it. Deliberately absent: starting containers (testcontainers does) and building images (the `docker`
//! program does, because only it speaks BuildKit).

mod labelled;

pub use labelled::Labelled;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use testcontainers::bollard::container::LogOutput;
use testcontainers::bollard::errors::Error as ApiError;
use testcontainers::bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use testcontainers::bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, LogsOptionsBuilder, UploadToContainerOptionsBuilder,
};
use testcontainers::bollard::{Docker as Api, body_full};
use tokio::time::timeout;

/// A connection to the Docker daemon.
#[derive(Debug, Clone)]
pub struct Docker(Api);

/// What a program in a container said.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Its exit code.
    pub code: i64,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Docker {
    /// Connects, and asks the daemon for the version that both speak.
    ///
    /// # Errors
    /// When no daemon answers.
    pub async fn connect() -> Result<Self, DockerError> {
        let api = Api::connect_with_defaults().map_err(DockerError::at("connect"))?;
        let api = api
            .negotiate_version()
            .await
            .map_err(DockerError::at("agree on a version"))?;
        Ok(Self(api))
    }

    /// The id of an image, if the daemon has it.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub async fn image_id(&self, reference: &str) -> Result<Option<String>, DockerError> {
        match self.0.inspect_image(reference).await {
            Ok(image) => Ok(image.id),
            Err(ApiError::DockerResponseServerError {
                status_code: 404, ..
            }) => Ok(None),
            Err(error) => Err(DockerError::at("look for an image")(error)),
        }
    }

    /// Runs a program in a running container.
    ///
    /// # Errors
    /// When it cannot be started, or does not end in time; its own failure is in [`Output::code`].
    pub async fn exec(&self, container: &str, argv: &[&str]) -> Result<Output, DockerError> {
        let ended = timeout(PATIENCE, self.exec_to_the_end(container, argv)).await;
        ended.map_err(|_| DockerError {
            action: "wait any longer for a program in a container",
            source: ApiError::RequestTimeoutError,
        })?
    }

    async fn exec_to_the_end(&self, container: &str, argv: &[&str]) -> Result<Output, DockerError> {
        let failed = DockerError::at("run a program in a container");
        let options = CreateExecOptions {
            cmd: Some(argv.to_vec()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..Default::default()
        };
        let exec = self
            .0
            .create_exec(container, options)
            .await
            .map_err(&failed)?
            .id;
        let mut output = Output::default();
        let started = self
            .0
            .start_exec(&exec, None::<StartExecOptions>)
            .await
            .map_err(&failed)?;
        if let StartExecResults::Attached {
            output: mut stream, ..
        } = started
        {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            while let Some(part) = stream.try_next().await.map_err(&failed)? {
                match part {
                    LogOutput::StdErr { message } => err.extend_from_slice(&message),
                    other => out.extend_from_slice(&other.into_bytes()),
                }
            }
            // Bytes are joined first: a part may end within a character.
            output.stdout = String::from_utf8_lossy(&out).into_owned();
            output.stderr = String::from_utf8_lossy(&err).into_owned();
        }
        let ended = self.0.inspect_exec(&exec).await.map_err(&failed)?;
        output.code = ended.exit_code.unwrap_or_default();
        Ok(output)
    }

    /// Unpacks a tar archive at the root of a container's file system.
    ///
    /// # Errors
    /// When the container is not there or refuses.
    pub async fn upload(&self, container: &str, archive: Vec<u8>) -> Result<(), DockerError> {
        let options = UploadToContainerOptionsBuilder::new().path("/").build();
        self.0
            .upload_to_container(container, Some(options), body_full(archive.into()))
            .await
            .map_err(DockerError::at("copy into a container"))
    }

    /// A file or folder of a container, as a tar archive.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn download(&self, container: &str, path: &str) -> Result<Vec<u8>, DockerError> {
        let options = DownloadFromContainerOptionsBuilder::new()
            .path(path)
            .build();
        let parts: Vec<Bytes> = self
            .0
            .download_from_container(container, Some(options))
            .try_collect()
            .await
            .map_err(DockerError::at("copy out of a container"))?;
        Ok(parts.concat())
    }

    /// Both streams of a container, in the order of their lines, at most the last `lines`.
    ///
    /// # Errors
    /// When the container is not there.
    pub async fn logs(&self, container: &str, lines: usize) -> Result<String, DockerError> {
        let options = LogsOptionsBuilder::new()
            .stdout(true)
            .stderr(true)
            .tail(&lines.to_string())
            .build();
        let mut text = String::new();
        let mut stream = self.0.logs(container, Some(options)).boxed();
        while let Some(part) = stream.next().await {
            let part = part.map_err(DockerError::at("read a container's log"))?;
            text.push_str(&String::from_utf8_lossy(&part.into_bytes()));
        }
        Ok(text)
    }
}

/// How long a program in a container may take: the longest one that we run imports an image into a busy node.
const PATIENCE: Duration = Duration::from_mins(5);

/// The `docker` program that can use BuildKit.
///
/// Debian's can; a newer client that comes first on the PATH without its buildx plugin cannot.
#[must_use]
pub fn program() -> PathBuf {
    let debian = Path::new("/usr/bin/docker");
    if debian.exists() {
        debian.to_owned()
    } else {
        PathBuf::from("docker")
    }
}

/// The daemon does not answer or refuses.
#[derive(Debug, thiserror::Error)]
#[error("Docker: could not {action}")]
pub struct DockerError {
    action: &'static str,
    source: ApiError,
}

impl DockerError {
    fn at(action: &'static str) -> impl Fn(ApiError) -> Self {
        move |source| Self { action, source }
    }
}
