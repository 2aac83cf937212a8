//! `harness bench admission`: the cost of a review in the webhook, compared with a baseline server on the same stack.
//!
//! CPU time is the time that the server's process used between the first and the last request of a measurement, as recorded by
//! the scheduler. It does not include start, handshakes and warm-up. Rounds are interleaved (baseline, webhook, webhook,
//! baseline), so that a drift of the machine cancels out within a round. The ratio is computed for each round.

mod cluster;
mod landscape;
pub(crate) mod policy;
mod reviews;
mod systems;

use std::time::Instant;

use self::reviews::Size;
use self::systems::{Case, Kind, Systems};
use crate::environment::Bench;
use crate::load::{CLOSED_LOOP, Client, Server, latencies};
use crate::report::{Bound, Row, Table};
use crate::statistics::Estimate;

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Table> {
    let systems = Systems::start(bench).await?;
    let mut cases = Vec::new();
    for (size, kind) in CASES {
        cases.push(Case::checked(&systems, size, kind).await?);
    }
    let (before, start) = (systems.calls().await?, Instant::now());
    let (mut rows, mut rates) = (Vec::new(), Vec::new());
    for case in &cases {
        let requests = match case.size {
            Size::Small | Size::Typical => bench.effort.choose(8_000, 3_000),
            Size::Large => bench.effort.choose(3_000, 1_000),
        };
        let load = (requests, CLOSED_LOOP);
        let comparison = Comparison::measure(bench, &systems, case, load).await?;
        rows.push(comparison.cpu_row(bench, case)?);
        let name = format!("reviews/s on one core: {}", case.name());
        rates.push(comparison.row(&name, 1, 0)?);
    }
    rows.extend(rates);
    for (index, rate) in OPEN_LOOPS {
        let case = &cases[index];
        let load = (bench.effort.choose(rate, rate / 2), rate);
        let comparison = Comparison::measure(bench, &systems, case, load).await?;
        rows.extend(comparison.latency_rows(case, rate)?);
    }
    let after = systems.calls().await?;
    let [requests, reviews] = [0, 1].map(|index| after[index] - before[index]);
    let minutes = start.elapsed().as_secs().div_ceil(60);
    rows.extend(memory(bench, &systems)?);
    rows.extend(cluster::rows(bench, &systems).await?);
    let counted = format!("{requests} in {reviews} reviews and {minutes} min");
    // Every five minutes the webhook asks whether the API server still projects bundles.
    let is_periodic = requests <= 2 * minutes && reviews > 1_000 * minutes;
    let periodic = Bound::required("≤ 2 per minute", is_periodic);
    let name = "API requests other than leases and watches";
    rows.push(Row::new([name, "", "", &counted]).bound(periodic));
    Ok(Table::new(COLUMNS, rows))
}

/// Results of both servers under the same load: two values for each round.
#[derive(Default)]
struct Comparison {
    baseline: Vec<[f64; 2]>,
    webhook: Vec<[f64; 2]>,
}

impl Comparison {
    /// Measures the costs in a closed loop; at a fixed rate, the median and the 99th percentile of the latency in milliseconds.
    async fn measure(
        bench: &Bench,
        systems: &Systems<'_>,
        case: &Case,
        (requests, rate): (u32, u32),
    ) -> anyhow::Result<Self> {
        let run = async |system: &Server, client: &mut Client| match rate {
            CLOSED_LOOP => client.cost(&system.process, 0..requests).await,
            _ => Ok(latencies(&client.run(0..requests, rate).await?)),
        };
        let (baseline, webhook) = (&systems.baseline, &systems.webhook);
        let mut a = Client::connect(&baseline.target, case.baseline.clone()).await?;
        let mut b = Client::connect(&webhook.target, case.webhook.clone()).await?;
        run(baseline, &mut a).await?;
        run(webhook, &mut b).await?;
        let middle =
            |one: [f64; 2], other: [f64; 2]| [0, 1].map(|it| f64::midpoint(one[it], other[it]));
        let mut comparison = Self::default();
        for _ in 0..bench.effort.choose(20, 6) {
            let first = run(baseline, &mut a).await?;
            let second = run(webhook, &mut b).await?;
            let third = run(webhook, &mut b).await?;
            let fourth = run(baseline, &mut a).await?;
            comparison.baseline.push(middle(first, fourth));
            comparison.webhook.push(middle(second, third));
        }
        Ok(comparison)
    }

    fn ratio(&self, index: usize) -> anyhow::Result<Estimate> {
        let rounds = self.webhook.iter().zip(&self.baseline);
        let ratios = rounds.map(|(webhook, baseline)| webhook[index] / baseline[index]);
        Estimate::of(&ratios.collect::<Vec<_>>())
    }

    /// Returns the ratio and both estimates of one of the two values.
    fn row(&self, name: &str, index: usize, digits: usize) -> anyhow::Result<Row> {
        let ratio = format!("{:.2}", self.ratio(index)?);
        let both = [&self.baseline, &self.webhook].map(|it| Estimate::of_rounds(it, index));
        let [baseline, webhook] = both.map(|it| it.map(|it| format!("{it:.digits$}")));
        Ok(Row::new([name.to_owned(), ratio, baseline?, webhook?]))
    }

    fn cpu_row(&self, bench: &Bench, case: &Case) -> anyhow::Result<Row> {
        let (full, quick) = match (case.size, case.kind) {
            (Size::Typical, Kind::AllFeatures) => (Some(1.7), 4.0),
            (Size::Large, _) => (None, 6.0),
            _ => (None, 4.0),
        };
        let ratio = self.ratio(0)?;
        let limit = bench.effort.choose(full, Some(quick));
        let row = self.row(&format!("CPU, µs per review: {}", case.name()), 0, 1)?;
        Ok(row.bound(limit.map(|limit| Bound::at_most(ratio, limit, " ×"))))
    }

    fn latency_rows(&self, case: &Case, rate: u32) -> anyhow::Result<[Row; 2]> {
        let name = |kind: &str| format!("{kind} at {rate}/s, ms: {}", case.name());
        let limit = if case.size == Size::Large { 0.5 } else { 0.15 };
        let median = Estimate::of_rounds(&self.webhook, 0)?;
        let bound = Bound::at_most(median, limit, " ms").target();
        // Both servers have the same p99 within the noise, because the scheduling of the machine determines it.
        let p99 = self.row(&name("p99 (mostly of the machine)"), 1, 3)?;
        Ok([self.row(&name("p50"), 0, 3)?.bound(bound), p99])
    }
}

fn memory(bench: &Bench, systems: &Systems<'_>) -> anyhow::Result<[Row; 2]> {
    let row = |name: &str, [baseline, webhook]: [f64; 2]| {
        let ratio = format!("{:.2}", webhook / baseline);
        let [baseline, webhook] = [baseline, webhook].map(|it| format!("{it:.1}"));
        Row::new([name, &ratio, &baseline, &webhook])
    };
    let most = |server: &Server| server.process.memory("VmHWM");
    let idle = |limit| Bound::at_most(systems.idle[1], limit, " MiB");
    let bound = bench.effort.choose(idle(12.0).target(), idle(20.0));
    let peak = [most(&systems.baseline)?, most(&systems.webhook)?];
    Ok([
        row("RSS idle, MiB", systems.idle).bound(bound),
        row("RSS peak, MiB", peak),
    ])
}

const COLUMNS: [&str; 4] = [
    "measure",
    "webhook ÷ baseline",
    "baseline server",
    "webhook",
];
const CASES: [(Size, Kind); 5] = [
    (Size::Typical, Kind::AllFeatures),
    (Size::Small, Kind::AllFeatures),
    (Size::Large, Kind::AllFeatures),
    (Size::Typical, Kind::NoFeature),
    (Size::Typical, Kind::Mutated),
];
/// Cases that are also measured at a fixed rate, in requests per second.
const OPEN_LOOPS: [(usize, u32); 2] = [(0, 2_000), (2, 200)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_taken_round_by_round() {
        let sample = |cpu| [cpu, 1.0];
        let comparison = Comparison {
            baseline: [10.0, 20.0, 12.0].map(sample).to_vec(),
            webhook: [15.0, 30.0, 18.0].map(sample).to_vec(),
        };
        let ratio = comparison.ratio(0).unwrap();
        assert_eq!(ratio, Estimate::from(1.5));
        assert!(Comparison::default().ratio(0).is_err());
    }
}
