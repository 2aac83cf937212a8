//! Steps that run a program for some time: their log, their progress, their failure.
//!
//! A step of more than two seconds is shown on the terminal. Its whole output is in one log file, and an error contains the end
//! of the log.
#![expect(
    clippy::print_stderr,
    reason = "this file talks to the person at the terminal"
)]

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;
use tokio::time::Instant;

use crate::evidence::slug;
use crate::workspace;

/// Prints one line to standard error.
pub fn say(line: &str) {
    eprintln!("{line}");
}

/// Runs `command` to its end and writes its output to `target/harness/logs/<title>.log`.
pub async fn run(title: &str, command: &mut Command) -> anyhow::Result<()> {
    let log = workspace::logs().join(format!("{}.log", slug(title)));
    std::fs::create_dir_all(workspace::logs())?;
    let out = File::create(&log)?;
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    let child = command.kill_on_drop(true).spawn();
    let mut child = child.with_context(|| format!("{title}: the program cannot be run"))?;
    let status = watch(title, &log, child.wait()).await?;
    let (path, end) = (log.display(), tail(&log, TAIL_LINES));
    ensure!(
        status.success(),
        "{title}: failed ({status}); the end of {path}:\n{end}"
    );
    Ok(())
}

/// Shows `title` while `work` runs, if it runs longer than `MOMENT`.
pub fn show<T>(title: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    // Boxed, because long-running futures are large, and would enlarge the futures of all callers.
    Box::pin(watch(title, Path::new(""), work))
}

async fn watch<T>(title: &str, log: &Path, work: impl Future<Output = T>) -> T {
    let begin = Instant::now();
    let mut is_shown = false;
    let mut work = std::pin::pin!(work);
    let mut tick = tokio::time::interval_at(begin + MOMENT, BEAT);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            _ = tick.tick() => {
                let seconds = begin.elapsed().as_secs();
                say(&format!("… {title} ({seconds} s) {}", tail(log, 1)));
                is_shown = true;
            }
        }
    };
    if is_shown {
        let seconds = begin.elapsed().as_secs_f64();
        say(&format!("  {title}: {seconds:.1} s"));
    }
    done
}

/// Returns the last `lines` lines of a file that are not blank; an empty text if the file cannot be read.
pub fn tail(file: &Path, lines: usize) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all = text.lines().filter(|line| !line.trim().is_empty());
    let all: Vec<&str> = all.collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Steps shorter than this are not shown.
const MOMENT: Duration = Duration::from_secs(2);
/// Interval between two lines of a step.
const BEAT: Duration = Duration::from_secs(20);
const TAIL_LINES: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_shows_the_end_of_the_log_or_the_program_that_is_missing() {
        let run = async |title, command: &mut Command| {
            let failed = super::run(title, command).await;
            format!("{:#}", failed.unwrap_err())
        };
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo first; echo last >&2; exit 3"]);
        let text = run("a test that fails", &mut failing).await;
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.ends_with("first\nlast"), "{text}");
        let text = run("no such step", &mut Command::new("/no/such/program")).await;
        let expected = "no such step: the program cannot be run: ";
        assert!(text.starts_with(expected), "{text}");
    }
}
