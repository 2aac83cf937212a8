//! `harness bench admission`: the cost of a review in the webhook, compared with a baseline server on the same stack.
//!
//! CPU time is that of the server's process between the first and the last request of a measurement, by the scheduler's
//! account: without start, handshakes and warm-up. Rounds are interleaved (baseline, webhook, webhook, baseline), so a
//! drift of the machine cancels out within a round; the ratio is taken round by round.

mod api_server;
mod reviews;
mod systems;

use std::time::{Duration, Instant};

use anyhow::Context as _;

use self::reviews::Size;
use self::systems::{Case, Kind, System, Systems};
use crate::environment::Bench;
use crate::load::{Client, Load};
use crate::report::{Bound, Row, Table};
use crate::statistics::{Estimate, milliseconds, number};

/// Measures everything.
pub(crate) async fn measure(bench: &Bench<'_>) -> anyhow::Result<Table> {
    let start = Systems::start(bench);
    let mut systems = bench
        .progress
        .show("start webhook and baseline server", start)
        .await?;
    let mut cases = Vec::new();
    for (size, kind) in CASES {
        cases.push(Case::checked(&systems, size, kind).await?);
    }
    let before = systems.calls().await?;
    let (mut rows, mut rates) = (Vec::new(), Vec::new());
    for case in &cases {
        let title = format!("CPU and rate: {}", case.name());
        let compare = Comparison::measure(bench, &systems, case);
        let comparison = bench.progress.show(&title, compare).await?;
        rows.push(comparison.cpu_row(bench, case));
        rates.push(comparison.rate_row(case));
    }
    rows.extend(rates);
    for (case, rate) in cases
        .iter()
        .filter_map(|case| Some((case, open_rate(case)?)))
    {
        let title = format!("latency at {rate}/s: {}", case.name());
        let measure = latency(bench, &systems, case, rate);
        rows.extend(bench.progress.show(&title, measure).await?);
    }
    let (requests, reviews) = systems.calls().await?.since(before);
    rows.extend(memory(&systems)?);
    let counted = format!("{requests} in {reviews} reviews");
    let none = Bound::required("= 0", requests == 0 && reviews > 0);
    rows.push(
        Row::new([
            "API requests other than leases and watches",
            "",
            "",
            &counted,
        ])
        .bound(none),
    );
    for system in [&mut systems.baseline, &mut systems.webhook] {
        system.process.kill().await?;
    }
    Ok(Table::new(
        &[
            "measure",
            "webhook ÷ baseline",
            "baseline server",
            "webhook",
        ],
        rows,
    ))
}

/// One server with open connections.
struct Side<'a> {
    system: &'a System,
    client: Client,
}

/// CPU time in microseconds per review, and reviews per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    cpu: f64,
    rate: f64,
}

impl<'a> Side<'a> {
    async fn both(systems: &'a Systems, case: &Case) -> anyhow::Result<(Self, Self)> {
        let side = async |system: &'a System, requests| {
            let client = Client::connect(&system.target, requests).await?;
            anyhow::Ok(Self { system, client })
        };
        let baseline = side(&systems.baseline, case.baseline.clone()).await?;
        Ok((
            baseline,
            side(&systems.webhook, case.webhook.clone()).await?,
        ))
    }

    async fn closed_loop(&mut self, requests: u32) -> anyhow::Result<Sample> {
        let (cpu, begin) = (self.system.process.cpu()?, Instant::now());
        self.client.run(load(requests, 0)).await?;
        let elapsed = begin.elapsed().as_secs_f64();
        let cpu = self.system.process.cpu()?.saturating_sub(cpu);
        Ok(Sample {
            cpu: cpu.as_secs_f64() * 1e6 / number(requests),
            rate: number(requests) / elapsed,
        })
    }

    /// The median and the 99th percentile in milliseconds.
    async fn open_loop(&mut self, requests: u32, rate: u32) -> anyhow::Result<[f64; 2]> {
        let exchanges = self.client.run(load(requests, rate)).await?;
        let quantile =
            |share| milliseconds(exchanges.iter().map(crate::load::Exchange::latency), share);
        Ok([
            quantile(0.5).context("no request")?,
            quantile(0.99).context("no request")?,
        ])
    }
}

/// Both servers in a closed loop, a sample for each round.
#[derive(Default)]
struct Comparison {
    baseline: Vec<Sample>,
    webhook: Vec<Sample>,
}

impl Comparison {
    async fn measure(bench: &Bench<'_>, systems: &Systems, case: &Case) -> anyhow::Result<Self> {
        let (mut baseline, mut webhook) = Side::both(systems, case).await?;
        let requests = match case.size {
            Size::Small | Size::Typical => bench.effort.choose(8_000, 3_000),
            Size::Large => bench.effort.choose(3_000, 1_000),
        };
        for side in [&mut baseline, &mut webhook] {
            side.closed_loop(requests).await?;
        }
        let mut comparison = Self::default();
        for _ in 0..bench.effort.choose(ROUNDS, QUICK_ROUNDS) {
            let first = baseline.closed_loop(requests).await?;
            let second = webhook.closed_loop(requests).await?;
            let third = webhook.closed_loop(requests).await?;
            let fourth = baseline.closed_loop(requests).await?;
            comparison.baseline.push(first.middle(fourth));
            comparison.webhook.push(second.middle(third));
        }
        Ok(comparison)
    }

    fn ratio(&self, of: fn(&Sample) -> f64) -> Option<Estimate> {
        let rounds = self.webhook.iter().zip(&self.baseline);
        let ratios: Vec<f64> = rounds
            .map(|(webhook, baseline)| of(webhook) / of(baseline))
            .collect();
        Estimate::of(&ratios)
    }

    fn estimates(&self, of: fn(&Sample) -> f64) -> Option<[Estimate; 3]> {
        let side = |samples: &[Sample]| Estimate::of(&samples.iter().map(of).collect::<Vec<_>>());
        Some([self.ratio(of)?, side(&self.baseline)?, side(&self.webhook)?])
    }

    fn cpu_row(&self, bench: &Bench<'_>, case: &Case) -> Row {
        let name = format!("CPU, µs per review: {}", case.name());
        let Some([ratio, baseline, webhook]) = self.estimates(|sample| sample.cpu) else {
            return Row::new([name]);
        };
        let cells = [
            name,
            format!("{ratio:.2}"),
            format!("{baseline:.1}"),
            format!("{webhook:.1}"),
        ];
        let (full, quick) = match (case.size, case.kind) {
            (Size::Typical, Kind::AllFeatures) => (Some(1.9), 3.0),
            (Size::Large, _) => (None, 4.0),
            _ => (None, 2.5),
        };
        let limit = bench.effort.choose(full, Some(quick));
        Row::new(cells).bound(limit.map(|limit| Bound::at_most(ratio, limit, " ×")))
    }

    fn rate_row(&self, case: &Case) -> Row {
        let name = format!("1000 reviews/s on one core: {}", case.name());
        let Some([ratio, baseline, webhook]) = self.estimates(|sample| sample.rate) else {
            return Row::new([name]);
        };
        let thousands = |rate: Estimate| format!("{:.1}", rate.times(1e-3));
        Row::new([
            name,
            format!("{ratio:.2}"),
            thousands(baseline),
            thousands(webhook),
        ])
    }
}

impl Sample {
    fn middle(self, other: Self) -> Self {
        Self {
            cpu: f64::midpoint(self.cpu, other.cpu),
            rate: f64::midpoint(self.rate, other.rate),
        }
    }
}

/// Median and 99th percentile at a fixed rate; the first of the two alternates from round to round.
async fn latency(
    bench: &Bench<'_>,
    systems: &Systems,
    case: &Case,
    rate: u32,
) -> anyhow::Result<Vec<Row>> {
    let (mut baseline, mut webhook) = Side::both(systems, case).await?;
    let requests = bench.effort.choose(rate, rate / 2);
    for side in [&mut baseline, &mut webhook] {
        side.open_loop(requests, rate).await?;
    }
    let (mut of_baseline, mut of_webhook) = (Vec::new(), Vec::new());
    for round in 0..bench.effort.choose(ROUNDS, QUICK_ROUNDS) {
        if round.is_multiple_of(2) {
            of_baseline.push(baseline.open_loop(requests, rate).await?);
            of_webhook.push(webhook.open_loop(requests, rate).await?);
        } else {
            of_webhook.push(webhook.open_loop(requests, rate).await?);
            of_baseline.push(baseline.open_loop(requests, rate).await?);
        }
    }
    let row = |index: usize, name: &str| {
        let pick = |rounds: &[[f64; 2]]| rounds.iter().map(|it| it[index]).collect::<Vec<_>>();
        let (baseline, webhook) = (pick(&of_baseline), pick(&of_webhook));
        let ratios: Vec<f64> = webhook
            .iter()
            .zip(&baseline)
            .map(|(one, other)| one / other)
            .collect();
        let cell = |samples: &[f64], digits| {
            let estimate = Estimate::of(samples);
            estimate.map_or_else(String::new, |it| format!("{it:.digits$}"))
        };
        let cells = [cell(&ratios, 2), cell(&baseline, 3), cell(&webhook, 3)];
        let name = format!("{name} at {rate}/s, ms: {}", case.name());
        (
            Row::new([name].into_iter().chain(cells)),
            Estimate::of(&webhook),
        )
    };
    let (median, estimate) = row(0, "p50");
    let limit = if case.size == Size::Large { 0.5 } else { 0.15 };
    let bound = estimate.map(|it| Bound::at_most(it, limit, " ms").target());
    // Both servers have the same p99 within the noise: it is the scheduling of the machine.
    let (p99, _) = row(1, "p99 (mostly of the machine)");
    Ok(vec![median.bound(bound), p99])
}

fn memory(systems: &Systems) -> anyhow::Result<Vec<Row>> {
    let Systems {
        baseline, webhook, ..
    } = systems;
    let row = |name: &str, baseline: f64, webhook: f64| {
        let ratio = webhook / baseline;
        Row::new([
            name,
            &format!("{ratio:.2}"),
            &format!("{baseline:.1}"),
            &format!("{webhook:.1}"),
        ])
    };
    let most = |system: &System| system.process.memory("VmHWM");
    let bound = Bound::at_most(Estimate::exact(webhook.idle), 20.0, " MiB");
    Ok(vec![
        row("RSS idle, MiB", baseline.idle, webhook.idle).bound(bound),
        row("RSS peak, MiB", most(baseline)?, most(webhook)?),
    ])
}

fn load(requests: u32, rate: u32) -> Load {
    Load {
        first: 0,
        requests,
        rate,
        give_up: Duration::from_secs(10),
    }
}

/// Cases that are measured at a fixed rate, in requests per second.
fn open_rate(case: &Case) -> Option<u32> {
    match (case.size, case.kind) {
        (Size::Typical, Kind::AllFeatures) => Some(2_000),
        (Size::Large, Kind::AllFeatures) => Some(200),
        _ => None,
    }
}

const CASES: [(Size, Kind); 5] = [
    (Size::Typical, Kind::AllFeatures),
    (Size::Small, Kind::AllFeatures),
    (Size::Large, Kind::AllFeatures),
    (Size::Typical, Kind::NoFeature),
    (Size::Typical, Kind::Mutated),
];
const ROUNDS: u32 = 20;
const QUICK_ROUNDS: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_taken_round_by_round() {
        let sample = |cpu| Sample { cpu, rate: 1.0 };
        let comparison = Comparison {
            baseline: [10.0, 20.0, 12.0].map(sample).to_vec(),
            webhook: [15.0, 30.0, 18.0].map(sample).to_vec(),
        };
        let ratio = comparison.ratio(|it| it.cpu).unwrap();
        assert_eq!(ratio, Estimate::exact(1.5));
        assert!(Comparison::default().ratio(|it| it.cpu).is_none());
    }
}
