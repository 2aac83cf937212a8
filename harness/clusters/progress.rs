//! Steps that run a program and take a while: their log, their progress, their failure.
//!
//! Invariant: a step that takes over two seconds is seen (a spinner on a terminal, plain lines elsewhere), its whole
//! output is in one log file, and a failure shows the end of that file. Deliberately absent: any wait for something
//! other than a program (see [`testkit::until`]).
#![expect(
    clippy::print_stderr,
    reason = "this file talks to the person at the terminal"
)]

use std::fs::File;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::process::Command;
use tokio::time::Instant;

use crate::evidence::slug;
use crate::workspace;

/// Shows steps, several at once if need be.
#[derive(Debug, Clone)]
pub struct Progress {
    bars: Option<MultiProgress>,
}

impl Progress {
    /// On standard error: spinners on a terminal, plain lines elsewhere.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bars: std::io::stderr().is_terminal().then(MultiProgress::new),
        }
    }

    /// One line for the reader, above the spinners.
    pub fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Runs `command` to its end with its output in `target/harness/logs/<title>.log`.
    ///
    /// # Errors
    /// When the program cannot be started or does not exit with 0.
    pub async fn run(&self, title: &str, command: &mut Command) -> Result<(), StepError> {
        let log = workspace::logs().join(format!("{}.log", slug(title)));
        let unstarted = |source| StepError::Unstarted {
            title: title.to_owned(),
            source,
        };
        let (out, err) = outputs(&log).map_err(unstarted)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true)
            .spawn()
            .map_err(unstarted)?;
        let ended = self
            .watch(title, &log, child.wait(), |ended| {
                ended.as_ref().is_ok_and(ExitStatus::success)
            })
            .await;
        let status = ended.map_err(unstarted)?;
        if status.success() {
            return Ok(());
        }
        Err(StepError::Failed {
            title: title.to_owned(),
            status,
            tail: tail(&log, TAIL_LINES),
            log,
        })
    }

    /// Shows `title` for as long as `work` takes, if that is longer than a moment.
    pub fn show<T>(&self, title: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
        // Boxed, because what takes long is large, and callers would carry it in each of their own futures.
        Box::pin(self.watch(title, Path::new(""), work, |_| true))
    }

    async fn watch<T>(
        &self,
        title: &str,
        log: &Path,
        work: impl Future<Output = T>,
        good: impl FnOnce(&T) -> bool,
    ) -> T {
        let begin = Instant::now();
        let mut line = Line::new(self.bars.as_ref(), title);
        let mut work = std::pin::pin!(work);
        let mut beat = tokio::time::interval_at(begin + MOMENT, BEAT);
        loop {
            tokio::select! {
                done = &mut work => {
                    line.close(begin.elapsed(), good(&done));
                    return done;
                }
                _ = beat.tick() => line.beat(begin.elapsed(), &tail(log, 1)),
            }
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

/// One step on the screen.
struct Line<'a> {
    bars: Option<&'a MultiProgress>,
    bar: Option<ProgressBar>,
    title: &'a str,
    spoken: Option<Duration>,
}

impl<'a> Line<'a> {
    fn new(bars: Option<&'a MultiProgress>, title: &'a str) -> Self {
        Self {
            bars,
            bar: None,
            title,
            spoken: None,
        }
    }

    fn beat(&mut self, elapsed: Duration, last: &str) {
        if let Some(bars) = self.bars {
            let bar = self.bar.get_or_insert_with(|| {
                let bar = bars.add(ProgressBar::new_spinner());
                bar.set_style(
                    ProgressStyle::with_template("{spinner} {prefix} ({elapsed}) {wide_msg:.dim}")
                        .unwrap_or_else(|_| ProgressStyle::default_spinner()),
                );
                bar.set_prefix(self.title.to_owned());
                bar.enable_steady_tick(Duration::from_millis(120));
                bar
            });
            bar.set_message(last.to_owned());
        } else if self.spoken.is_none() {
            eprintln!("… {}", self.title);
            self.spoken = Some(elapsed);
        } else if self.spoken.is_some_and(|at| elapsed >= at + SILENCE) {
            eprintln!("… {} ({} s) {last}", self.title, elapsed.as_secs());
            self.spoken = Some(elapsed);
        }
    }

    fn close(self, elapsed: Duration, good: bool) {
        let mark = if good { '✓' } else { '✗' };
        let done = format!("{mark} {} ({:.1} s)", self.title, elapsed.as_secs_f64());
        match (self.bars, self.bar) {
            (Some(bars), Some(bar)) => {
                bar.finish_and_clear();
                bars.suspend(|| eprintln!("{done}"));
            }
            _ if self.spoken.is_some() => eprintln!("{done}"),
            _ => {}
        }
    }
}

fn outputs(log: &Path) -> std::io::Result<(File, File)> {
    if let Some(folder) = log.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let out = File::create(log)?;
    let err = out.try_clone()?;
    Ok((out, err))
}

/// The last `lines` lines of a file; nothing when it cannot be read.
#[must_use]
pub fn tail(file: &Path, lines: usize) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A step did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The program is not there or could not be run.
    #[error("{title}: the program could not be run")]
    Unstarted {
        /// What the step was to do.
        title: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The program says that it failed.
    #[error("{title}: failed ({status}); the end of {}:\n{tail}", log.display())]
    Failed {
        /// What the step was to do.
        title: String,
        /// How the program ended.
        status: ExitStatus,
        /// The whole output.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
}

/// Steps shorter than this are not shown.
const MOMENT: Duration = Duration::from_secs(2);
const BEAT: Duration = Duration::from_millis(500);
/// How long plain output may be silent.
const SILENCE: Duration = Duration::from_secs(20);
const TAIL_LINES: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_shows_the_end_of_the_log() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo last >&2; exit 3"]);
        let error = Progress::new()
            .run("a test that fails", &mut command)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("exit status: 3") && text.ends_with("first\nlast"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = Progress::new()
            .run("no such step", &mut Command::new("/no/such/program"))
            .await
            .unwrap_err();
        assert!(matches!(error, StepError::Unstarted { .. }), "{error}");
    }
}
