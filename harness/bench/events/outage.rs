//! An hour without KCP, on a compressed clock: as many reviews as an hour has, in two minutes; then KCP comes back.
//!
//! What is compressed is the rate of changes alone. Back-off, heartbeats and timeouts are the product's own and see the
//! short time; the longest back-off (a minute) is reached in it. So queue, spool and memory see an hour's changes;
//! what only an hour of time brings (logs, certificates) is not shown. Half of it KCP refuses, half of it it hangs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;

use super::admission::{CONNECTIONS, P99};
use super::kcp::{Heard, Kcp, Operator, State};
use super::model::Model;
use super::report::{Row, Times, mebibytes};
use super::stage::Stage;
use super::stream::{Answers, Stream};
use super::watcher::{Program, Watcher};

/// Measures it.
pub(super) async fn measure(stage: &Stage<'_>) -> anyhow::Result<Vec<Row>> {
    let (operator, heard) = Operator::listening(&stage.authority.pem).await?;
    let kcp = Kcp::before(&stage.authority, operator.address).await?;
    let program = Program::new(stage, "watcher", kcp.address)?;
    let mut watcher = program.start(&[])?;
    let idle = mebibytes(watcher.idle().await?);
    let idle =
        Row::new("RSS MiB of the watcher, idle", format!("{idle:.1}")).at_most(idle, IDLE, " MiB");
    let mut play = Play {
        stage,
        kcp,
        heard,
        program,
        watcher,
    };
    let mut rows = vec![idle];
    rows.extend(play.outage().await?);
    Ok(rows)
}

struct Play<'a, 'b> {
    stage: &'a Stage<'b>,
    kcp: Kcp,
    heard: Arc<Heard>,
    program: Program,
    watcher: Watcher,
}

/// What was seen while KCP was away.
struct Away {
    answers: Answers,
    /// Resident KiB after each slice; every object waits from the first on.
    memory: Vec<u32>,
    spool: u64,
    public: Answers,
}

impl Play<'_, '_> {
    async fn outage(&mut self) -> anyhow::Result<Vec<Row>> {
        let title = "an hour without KCP, compressed";
        let stage = self.stage;
        let away = stage.progress.show(title, self.away()).await?;
        let before = self.heard.events();
        self.kcp.turn(State::Up).await?;
        let model = away.answers.model();
        let settling = model.settle(&self.heard, PATIENCE);
        let back = stage.progress.show("KCP comes back", settling).await;
        self.watcher.is_running()?;
        let events = self.heard.events() - before;
        self.watcher.kill().await?;
        self.rows(&away, &model, (back, events))
    }

    async fn away(&mut self) -> anyhow::Result<Away> {
        let (player, door) = self.stage.public(self.kcp.address).await?;
        self.kcp.turn(State::Refusing).await?;
        let one_each = Stream {
            prefix: "public",
            reviews: u32::try_from(CONNECTIONS)?,
            rate: 0,
            objects: u32::MAX,
            connections: CONNECTIONS,
        };
        let public = one_each.run(&door).await?;
        player.process.end().await?;
        let (mut all, mut memory) = (Vec::new(), Vec::new());
        for slice in 0..SLICES {
            if slice == SLICES / 2 {
                self.kcp.turn(State::Hanging).await?;
            }
            all.extend(self.slice().run(&self.program.door).await?.0);
            memory.push(self.watcher.memory()?);
        }
        let answers = Answers(all);
        ensure!(answers.given_up() == 0, "reviews without an answer");
        Ok(Away {
            answers,
            memory,
            spool: self.program.spool_bytes()?,
            public,
        })
    }

    /// A part of the hour, in which every object changes.
    fn slice(&self) -> Stream {
        Stream {
            prefix: "hour",
            reviews: self.stage.count(HOUR) / SLICES,
            rate: RATE,
            objects: self.stage.count(OBJECTS),
            connections: CONNECTIONS,
        }
    }

    fn rows(
        &self,
        away: &Away,
        model: &Model,
        ((lost, took), events): ((usize, Duration), u64),
    ) -> anyhow::Result<Vec<Row>> {
        let times: Times = away.answers.times()?;
        let p99 = times.quantile(0.99);
        let first = mebibytes(away.memory.first().copied().unwrap_or_default());
        let later = away.memory.iter().copied().max().unwrap_or_default();
        let later = mebibytes(later);
        let asked = away.answers.0.len();
        let objects = model.objects();
        let public = away.public.model();
        let public_lost = public.unknown(&self.heard);
        Ok(vec![
            Row::new(
                "… without KCP: when every object waits, and the most in the hour",
                format!("{first:.1}, {later:.1}"),
            )
            .at_most(later - first, FLAT, " MiB more"),
            Row::new(
                format!("admission p99 ms in the hour, {RATE}/s"),
                format!("{p99:.2}; p50 {:.2}", times.quantile(0.5)),
            )
            .at_most(p99, P99, " ms"),
            Row::new(
                "final states lost over an hour's outage",
                format!("{lost} of {objects} objects, {asked} reviews"),
            )
            .beside(
                String::new(),
                format!("{public_lost} of {}", public.objects()),
            )
            .none(lost),
            Row::new(
                "… all known after KCP is back, s",
                format!(
                    "{:.1}; {events} events; the spool had {} KiB",
                    took.as_secs_f64(),
                    away.spool >> 10
                ),
            ),
        ])
    }
}

/// MiB.
const IDLE: f64 = 15.0;
/// MiB, from when every object waits to the end of the hour.
const FLAT: f64 = 1.0;
/// Reviews of an hour: ten a second.
const HOUR: u32 = 36_000;
/// Thirty times as many a second.
const RATE: u32 = 300;
const SLICES: u32 = 10;
/// That are watched on one runtime: more than any has.
const OBJECTS: u32 = 1_000;
/// The longest back-off, and what comes after it.
const PATIENCE: Duration = Duration::from_mins(2);
