//! Load, in turns: what one subject costs beside the other in the same minute.
//!
//! Invariant: CPU time is the kernel's, of the subject's process alone, and holds only what happened between the first
//! and the last request of a measurement: no start, no handshake, no warm-up.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;

use super::answers::{Case, Kind};
use super::generator::{Generator, Sample};
use super::machine::Cores;
use super::reviews::Size;
use super::statistics::{Spread, steady};
use super::subjects::Subjects;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effort {
    /// Rounds that count.
    pub(super) rounds: usize,
    /// A share of the requests is one in so many.
    pub(super) divisor: u32,
}

impl Effort {
    /// For figures.
    pub(super) const FULL: Self = Self {
        rounds: 5,
        divisor: 1,
    };
    /// For a look at whether everything works.
    pub(super) const QUICK: Self = Self {
        rounds: 2,
        divisor: 10,
    };
}

/// What one subject did in a closed loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    /// Microseconds of CPU time a review.
    pub(super) cpu: Spread,
    /// Reviews a second on one core.
    pub(super) rate: Spread,
}

/// Both, in a closed loop.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) noop: Capacity,
    pub(super) webhook: Capacity,
    /// CPU of the webhook by that of the no-op, round by round.
    pub(super) ratio: Spread,
    /// Rounds that were left out because the no-op was disturbed.
    pub(super) rejected: usize,
}

/// What one subject did in an open loop, counted from the time at which a request was due.
#[derive(Debug)]
pub(super) struct Latency {
    /// Nanoseconds, of all rounds.
    all: Histogram<u64>,
    /// The 99th percentile of each round, in milliseconds.
    pub(super) p99: Spread,
}

/// The stage: who loads whom with what.
pub(super) struct Stage<'a> {
    pub(super) load: &'a Path,
    pub(super) cores: Cores,
    pub(super) subjects: &'a Subjects,
    pub(super) effort: Effort,
}

impl Stage<'_> {
    /// Closed loop over kept-alive connections, ABBA, until enough rounds were undisturbed.
    pub(super) async fn capacity(&self, case: &Case) -> anyhow::Result<Comparison> {
        let (mut noop, mut webhook) = self.generators(case).await?;
        let requests = closed_requests(case.size) / self.effort.divisor;
        for generator in [&mut noop, &mut webhook] {
            generator.run(requests / 4, 0).await?;
        }
        let mut rounds = Vec::new();
        let mut good = Vec::new();
        while good.len() < self.effort.rounds && rounds.len() < self.effort.rounds + SPARE {
            rounds.push(round(&mut noop, &mut webhook, requests).await?);
            let limit: Vec<f64> = rounds.iter().map(|round: &Round| round.noop.cpu).collect();
            good = rounds
                .iter()
                .zip(steady(&limit, STEADY))
                .filter_map(|(round, steady)| steady.then_some(*round))
                .collect();
        }
        let rejected = rounds.len() - good.len();
        for generator in [noop, webhook] {
            generator.end().await?;
        }
        compare(&good, rejected).context("no round was undisturbed")
    }

    /// Open loop at a fixed rate, in turns: the no-op first and the webhook first.
    pub(super) async fn latency(
        &self,
        case: &Case,
        rate: u32,
    ) -> anyhow::Result<(Latency, Latency)> {
        let (mut noop, mut webhook) = self.generators(case).await?;
        let requests = rate * OPEN_SECONDS / self.effort.divisor;
        let mut seen = [Vec::new(), Vec::new()];
        for generator in [&mut noop, &mut webhook] {
            generator.run(requests / 5, rate).await?;
        }
        for round in 0..self.effort.rounds {
            let mut order = [0, 1];
            order.rotate_left(round % 2);
            for index in order {
                let generator = if index == 0 { &mut noop } else { &mut webhook };
                let measured = generator.run(requests, rate).await?;
                seen[index].push(measured.histogram()?);
            }
        }
        for generator in [noop, webhook] {
            generator.end().await?;
        }
        let [noop, webhook] = seen;
        Ok((Latency::of(&noop)?, Latency::of(&webhook)?))
    }

    async fn generators(&self, case: &Case) -> anyhow::Result<(Generator<'_>, Generator<'_>)> {
        let body = self.subjects.folder().join("body.json");
        std::fs::write(&body, &case.body)?;
        let noop = Generator::start(self, &self.subjects.noop, &body).await?;
        let webhook = Generator::start(self, &self.subjects.webhook, &body).await?;
        Ok((noop, webhook))
    }
}

#[derive(Debug, Clone, Copy)]
struct Round {
    noop: Sample,
    webhook: Sample,
}

/// ABBA: what drifts evenly during a round cancels out.
async fn round(
    noop: &mut Generator<'_>,
    webhook: &mut Generator<'_>,
    requests: u32,
) -> anyhow::Result<Round> {
    let first = noop.run(requests, 0).await?.sample();
    let second = webhook.run(requests, 0).await?.sample();
    let third = webhook.run(requests, 0).await?.sample();
    let fourth = noop.run(requests, 0).await?.sample();
    Ok(Round {
        noop: first.between(fourth),
        webhook: second.between(third),
    })
}

fn compare(rounds: &[Round], rejected: usize) -> Option<Comparison> {
    let capacity = |side: fn(&Round) -> Sample| {
        let samples = || rounds.iter().map(side);
        Some(Capacity {
            cpu: Spread::of(samples().map(|it| it.cpu))?,
            rate: Spread::of(samples().map(|it| it.rate))?,
        })
    };
    Some(Comparison {
        noop: capacity(|round| round.noop)?,
        webhook: capacity(|round| round.webhook)?,
        ratio: Spread::of(rounds.iter().map(|it| it.webhook.cpu / it.noop.cpu))?,
        rejected,
    })
}

impl Latency {
    fn of(rounds: &[Histogram<u64>]) -> anyhow::Result<Self> {
        let mut all = Histogram::new(3)?;
        for round in rounds {
            all.add(round)?;
        }
        let p99 = rounds
            .iter()
            .map(|round| milliseconds(round.value_at_quantile(0.99)));
        Ok(Self {
            all,
            p99: Spread::of(p99).context("no round")?,
        })
    }

    /// Milliseconds within which this share of the requests had its answer.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        milliseconds(self.all.value_at_quantile(share))
    }
}

fn milliseconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64() * 1e3
}

/// So many that CPU time in steps of 10 ms is known to the percent of a round.
fn closed_requests(size: Size) -> u32 {
    match size {
        Size::Small | Size::Typical => 30_000,
        Size::Large => 10_000,
    }
}

/// Which open loops are run: the case and the rate a second.
pub(super) fn open_rate(case: &Case) -> Option<u32> {
    match (case.size, case.kind) {
        (Size::Typical, Kind::AllFeatures) => Some(2_000),
        (Size::Large, Kind::AllFeatures) => Some(200),
        _ => None,
    }
}

const OPEN_SECONDS: u32 = 4;
/// Rounds that may be repeated, so that a noisy machine ends as well.
const SPARE: usize = 3;
/// A round in which the no-op moved by a larger share says nothing of anyone.
const STEADY: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_taken_round_by_round() {
        let sample = |cpu| Sample { cpu, rate: 1.0 };
        let rounds = [(10.0, 15.0), (20.0, 32.0), (12.0, 18.0)].map(|(noop, webhook)| Round {
            noop: sample(noop),
            webhook: sample(webhook),
        });
        let ratio = compare(&rounds, 0).unwrap().ratio;
        assert_eq!((ratio.median, ratio.largest), (1.5, 1.6));
        assert!(compare(&[], 3).is_none());
    }
}
