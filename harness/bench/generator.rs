//! The load generator, a process of its own on a core of its own, and what it says.
//!
//! Invariant: a wrong answer is an error, not a figure. CPU time is the subject's, from the kernel, between the first and
//! the last request.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::names;
use hdrhistogram::Histogram;

use super::process::Process;
use super::rounds::Stage;
use super::subjects::{NAME, Subject};

/// A load generator with its connections to one subject.
pub(super) struct Generator<'a> {
    process: Process,
    subject: &'a Subject,
}

impl<'a> Generator<'a> {
    /// Starts one and waits until it is connected.
    pub(super) async fn start(
        stage: &Stage<'a>,
        subject: &'a Subject,
        body: &Path,
    ) -> anyhow::Result<Self> {
        let address = subject.address.to_string();
        let authority = stage.subjects.authority().display().to_string();
        let body = body.display().to_string();
        let connections = CONNECTIONS.to_string();
        let arguments = [
            &*address,
            NAME,
            &*authority,
            names::WEBHOOK_PATH,
            &*body,
            &*connections,
        ];
        let name = format!("load-{}", subject.process.name());
        let core = stage.cores.generator;
        let mut process = Process::converse(&name, core, stage.load, &arguments)?;
        let greeting = process.hear().await?;
        ensure!(greeting == "connected", "{name} said {greeting:?}");
        Ok(Self { process, subject })
    }

    /// Ends it and its connections.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.process.end().await
    }

    /// One measurement: a closed loop, or an open one at `rate` a second.
    pub(super) async fn run(&mut self, requests: u32, rate: u32) -> anyhow::Result<Measured> {
        let before = self.subject.process.cpu()?;
        self.process.say(&format!("{requests} {rate}")).await?;
        let line = self.process.hear().await?;
        let cpu = self.subject.process.cpu()?.saturating_sub(before);
        Measured::read(&line, cpu)
    }
}

/// One measurement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measured {
    requests: u32,
    elapsed: Duration,
    cpu: Duration,
    latencies: Vec<Duration>,
}

impl Measured {
    /// `requests elapsed failed latency…`, in nanoseconds.
    fn read(line: &str, cpu: Duration) -> anyhow::Result<Self> {
        let mut figures = line.split(' ').map(str::parse::<u64>);
        let mut next = || figures.next().context("a line that is too short");
        let (requests, elapsed, failed) = (next()??, next()??, next()??);
        ensure!(failed == 0, "{failed} of {requests} answers were wrong");
        Ok(Self {
            requests: u32::try_from(requests)?,
            elapsed: Duration::from_nanos(elapsed),
            cpu,
            latencies: figures
                .map(|nanos| Ok(Duration::from_nanos(nanos?)))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// Figures of a closed loop.
    pub(super) fn sample(&self) -> Sample {
        let requests = f64::from(self.requests);
        Sample {
            cpu: self.cpu.as_secs_f64() * 1e6 / requests,
            rate: requests / self.elapsed.as_secs_f64(),
        }
    }

    /// Latencies of an open loop, in nanoseconds.
    pub(super) fn histogram(&self) -> anyhow::Result<Histogram<u64>> {
        let mut histogram = Histogram::new(3)?;
        for latency in &self.latencies {
            histogram.record(u64::try_from(latency.as_nanos())?)?;
        }
        Ok(histogram)
    }
}

/// What a review costs and how many are answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Microseconds of CPU time a review.
    pub(super) cpu: f64,
    /// Reviews a second.
    pub(super) rate: f64,
}

impl Sample {
    /// The middle of both.
    pub(super) fn between(self, other: Self) -> Self {
        Self {
            cpu: f64::midpoint(self.cpu, other.cpu),
            rate: f64::midpoint(self.rate, other.rate),
        }
    }
}

/// An API server keeps about so many to a busy webhook.
const CONNECTIONS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_generator_is_read() {
        let cpu = Duration::from_millis(40);
        let measured = Measured::read("2000 100000000 0 1500 2000", cpu).unwrap();
        assert_eq!(
            measured.sample(),
            Sample {
                cpu: 20.0,
                rate: 20_000.0
            }
        );
        assert_eq!(measured.histogram().unwrap().max(), 2000);
        let wrong = Measured::read("2000 100000000 7", cpu).unwrap_err();
        assert!(wrong.to_string().contains("7 of 2000"), "{wrong}");
    }
}
