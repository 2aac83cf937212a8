//! What a change waits for: the time until the API server has its answer, with KCP up, refusing and hanging.
//!
//! Invariant: each review is of another object, which is the most work: nothing is coalesced.

use super::kcp::{Kcp, Operator, State};
use super::report::{Row, Times};
use super::reviews::Door;
use super::roles::Player;
use super::stage::Stage;
use super::stream::{Answers, Stream};
use super::watcher::{Program, Watcher};

/// Measures it.
pub(super) async fn measure(stage: &Stage<'_>) -> anyhow::Result<Vec<Row>> {
    let (operator, _heard) = Operator::listening(&stage.authority.pem).await?;
    let mut kcp = Kcp::before(&stage.authority, operator.address).await?;
    let subjects = Subjects::start(stage, &kcp).await?;
    let mut rows = Vec::new();
    for state in State::ALL {
        kcp.turn(state).await?;
        let title = format!("admission with KCP {}", state.name());
        let asking = subjects.ask(stage, state);
        rows.push(stage.progress.show(&title, asking).await?);
    }
    Ok(rows)
}

/// The three that are asked.
struct Subjects {
    spool: (Program, Watcher),
    sync: (Program, Watcher),
    public: (Player, Door),
}

impl Subjects {
    async fn start(stage: &Stage<'_>, kcp: &Kcp) -> anyhow::Result<Self> {
        let start = async |name, flags: &[&str]| {
            let program = Program::new(stage, name, kcp.address)?;
            let mut watcher = program.start(flags)?;
            watcher.ready().await?;
            anyhow::Ok((program, watcher))
        };
        Ok(Self {
            spool: start("watcher", &[]).await?,
            sync: start("watcher-sync", &["--delivery-mode=sync"]).await?,
            public: stage.public(kcp.address).await?,
        })
    }

    async fn ask(&self, stage: &Stage<'_>, kcp: State) -> anyhow::Result<Row> {
        let reviews = stage.count(RATE * SECONDS);
        let open = |prefix, rounds| Stream {
            prefix,
            reviews: reviews / ROUNDS * rounds,
            rate: RATE,
            objects: u32::MAX,
            connections: CONNECTIONS,
        };
        let mut rounds = Vec::new();
        let prefixes = match kcp {
            State::Up => ["up-1", "up-2", "up-3"],
            State::Refusing => ["refused-1", "refused-2", "refused-3"],
            State::Hanging => ["hung-1", "hung-2", "hung-3"],
        };
        for prefix in prefixes {
            rounds.push(open(prefix, 1).run(&self.spool.0.door).await?);
        }
        let (sync, public) = if kcp == State::Up {
            // Both wait for KCP: in turns.
            let sync = open("sync", ROUNDS).run(&self.sync.0.door).await?;
            (sync, open("public", ROUNDS).run(&self.public.1).await?)
        } else {
            tokio::try_join!(
                waiting("sync").run(&self.sync.0.door),
                waiting("public").run(&self.public.1)
            )?
        };
        row(kcp, rounds, &sync, &public)
    }
}

/// One review a connection, for those that wait for KCP where it does not answer.
fn waiting(prefix: &'static str) -> Stream {
    Stream {
        prefix,
        reviews: u32::try_from(CONNECTIONS).unwrap_or(1),
        rate: 0,
        objects: u32::MAX,
        connections: CONNECTIONS,
    }
}

fn row(
    state: State,
    rounds: Vec<Answers>,
    sync: &Answers,
    public: &Answers,
) -> anyhow::Result<Row> {
    let mut p99 = Vec::new();
    for round in &rounds {
        p99.push(round.times()?.quantile(0.99));
    }
    let all = Answers(rounds.into_iter().flat_map(|round| round.0).collect());
    let times = all.times()?;
    let least = p99.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = p99.iter().copied().fold(0.0, f64::max);
    let figure = times.quantile(0.99);
    let ours = format!(
        "{figure:.2} (rounds {least:.2}–{largest:.2}); p50 {:.2}, max {:.1}",
        times.quantile(0.5),
        times.quantile(1.0)
    );
    let measure = format!("admission p99 ms, KCP {}, {RATE}/s", state.name());
    Ok(Row::new(measure, ours)
        .beside(waited(sync)?, waited(public)?)
        .at_most(figure, P99, " ms"))
}

fn waited(answers: &Answers) -> anyhow::Result<String> {
    let times: Times = answers.times()?;
    let given_up = match answers.given_up() {
        0 => String::new(),
        some => format!("; the API server gave up on {some} of {}", answers.0.len()),
    };
    Ok(format!(
        "{:.1}; p50 {:.1}{given_up}",
        times.quantile(0.99),
        times.quantile(0.5)
    ))
}

/// Milliseconds.
pub(super) const P99: f64 = 2.0;
/// Reviews a second: more than an SKR has changes of what is watched.
const RATE: u32 = 200;
const SECONDS: u32 = 15;
const ROUNDS: u32 = 3;
/// An API server keeps about so many to a busy webhook.
pub(super) const CONNECTIONS: usize = 16;
