//! Steps that run a program and take a while: their log, their progress, their failure.
//!
//! A step that takes over two seconds is shown (a spinner on a terminal, plain lines elsewhere), its whole output is in one
//! log file, and a failure shows the end of that file.
#![expect(
    clippy::print_stderr,
    reason = "this file talks to the person at the terminal"
)]

use std::fs::File;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
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
    pub async fn run(&self, title: &str, command: &mut Command) -> anyhow::Result<()> {
        let log = workspace::logs().join(format!("{}.log", slug(title)));
        std::fs::create_dir_all(workspace::logs())?;
        let out = File::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        let child = command.kill_on_drop(true).spawn();
        let mut child = child.with_context(|| format!("{title}: the program cannot be run"))?;
        let good =
            |ended: &std::io::Result<ExitStatus>| ended.as_ref().is_ok_and(ExitStatus::success);
        let status = self.watch(title, &log, child.wait(), good).await?;
        ensure!(
            status.success(),
            "{title}: failed ({status}); the end of {}:\n{}",
            log.display(),
            tail(&log, TAIL_LINES)
        );
        Ok(())
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
        let mut bar = None;
        // The next plain line.
        let mut due = begin;
        let mut work = std::pin::pin!(work);
        let mut tick = tokio::time::interval_at(begin + MOMENT, BEAT);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                now = tick.tick() => {
                    if let Some(bars) = &self.bars {
                        let bar = bar.get_or_insert_with(|| spinner(bars, title));
                        bar.set_message(tail(log, 1));
                    } else if now >= due {
                        eprintln!("… {title} ({} s) {}", begin.elapsed().as_secs(), tail(log, 1));
                        due = now + SILENCE;
                    }
                }
            }
        };
        if let Some(bar) = &bar {
            bar.finish_and_clear();
        }
        if bar.is_some() || due > begin {
            let mark = if good(&done) { '✓' } else { '✗' };
            self.say(&format!(
                "{mark} {title} ({:.1} s)",
                begin.elapsed().as_secs_f64()
            ));
        }
        done
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn spinner(bars: &MultiProgress, title: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {prefix} ({elapsed}) {wide_msg:.dim}");
    let bar = bars.add(ProgressBar::new_spinner());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_prefix(title.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// The last `lines` lines of a file; nothing when it cannot be read.
pub fn tail(file: &Path, lines: usize) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    all[all.len().saturating_sub(lines)..].join("\n")
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
        let failed = Progress::new().run("a test that fails", &mut command).await;
        let text = failed.unwrap_err().to_string();
        assert!(
            text.contains("exit status: 3") && text.ends_with("first\nlast"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let mut missing = Command::new("/no/such/program");
        let failed = Progress::new().run("no such step", &mut missing).await;
        let text = format!("{:#}", failed.unwrap_err());
        assert!(
            text.starts_with("no such step: the program cannot be run: "),
            "{text}"
        );
    }
}
