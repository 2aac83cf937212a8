//! From a review to the operator: how long it takes where nothing else happens, what an event costs, and how fast a
//! backlog goes.
//!
//! Invariant: begin and end are of one clock, this process's, which is both the API server and KCP.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::admission::CONNECTIONS;
use super::kcp::{Heard, Kcp, Operator, State};
use super::report::{Row, Times, mebibytes, number};
use super::reviews::Door;
use super::stage::Stage;
use super::stream::{Answers, Stream};
use super::watcher::Program;
use crate::process::Process;
use testkit::until::{holds, until};

/// Measures it.
pub(super) async fn measure(stage: &Stage<'_>) -> anyhow::Result<Vec<Row>> {
    let (operator, heard) = Operator::listening(&stage.authority.pem).await?;
    let kcp = Kcp::before(&stage.authority, operator.address).await?;
    let mut play = Play { stage, kcp, heard };
    let program = Program::new(stage, "watcher", play.kcp.address)?;
    let mut watcher = program.start(&[])?;
    watcher.ready().await?;
    let ours = play.both(&program.door, &watcher.process, 1000).await?;
    let title = "delivery of a backlog";
    let backlog = play.backlog(&program.door, &watcher.process);
    let backlog = stage.progress.show(title, backlog).await?;
    watcher.kill().await?;

    let program = Program::new(stage, "watcher-sync", play.kcp.address)?;
    let mut watcher = program.start(&["--delivery-mode=sync"])?;
    watcher.ready().await?;
    let sync = play.both(&program.door, &watcher.process, 300).await?;
    watcher.kill().await?;

    let (player, door) = stage.public(play.kcp.address).await?;
    let public = play.both(&door, &player.process, 300).await?;
    player.process.end().await?;
    Ok(rows(&ours, &sync, &public, &backlog))
}

fn rows(ours: &Figures, sync: &Figures, public: &Figures, backlog: &Backlog) -> Vec<Row> {
    let idle = |figures: &Figures| {
        let (p99, p50) = (figures.idle.quantile(0.99), figures.idle.quantile(0.5));
        format!("{p99:.1}; p50 {p50:.1}")
    };
    let row = |measure: &str, cell: &dyn Fn(&Figures) -> String| {
        Row::new(measure, cell(ours)).beside(cell(sync), cell(public))
    };
    let end_to_end = "end to end p99 ms, idle: review sent → event with the operator";
    vec![
        row(end_to_end, &idle).at_most(ours.idle.quantile(0.99), IDLE, " ms"),
        row("CPU µs/event of the watcher, review and delivery", &|it| {
            format!("{:.0}", it.cpu)
        }),
        row("events/s, reviewed and delivered, 16 connections", &|it| {
            format!("{:.0}", it.rate)
        }),
        row("TLS handshakes with KCP, of 1000 events", &|it| {
            format!("{:.0}", it.handshakes * 1000.0)
        }),
        Row::new(
            format!("events/s out of a backlog of {} objects", backlog.events),
            format!(
                "{:.0}, CPU µs/event {:.0}; RSS {:.1} MiB while all of them wait",
                backlog.rate, backlog.cpu, backlog.memory
            ),
        )
        .beside("–".to_owned(), "keeps none".to_owned()),
    ]
}

struct Play<'a, 'b> {
    stage: &'a Stage<'b>,
    kcp: Kcp,
    heard: std::sync::Arc<Heard>,
}

/// Of one subject.
struct Figures {
    idle: Times,
    /// Microseconds an event.
    cpu: f64,
    /// Events a second.
    rate: f64,
    /// With KCP, an event.
    handshakes: f64,
}

struct Backlog {
    events: usize,
    cpu: f64,
    rate: f64,
    /// MiB resident before the first of them goes out.
    memory: f64,
}

impl Play<'_, '_> {
    async fn both(
        &mut self,
        door: &Door,
        subject: &Process,
        samples: u32,
    ) -> anyhow::Result<Figures> {
        let progress = self.stage.progress;
        let title = format!("end to end, idle: {}", subject.name());
        let idle = progress.show(&title, self.idle(door, samples)).await?;
        let title = format!("end to end, busy: {}", subject.name());
        let busy = progress.show(&title, self.busy(door, subject));
        let (cpu, rate, handshakes) = busy.await?;
        Ok(Figures {
            idle,
            cpu,
            rate,
            handshakes,
        })
    }

    /// From each review to the first event of its object.
    async fn idle(&self, door: &Door, samples: u32) -> anyhow::Result<Times> {
        self.heard.forget();
        let stream = Stream {
            prefix: "idle",
            reviews: self.stage.count(samples),
            rate: IDLE_RATE,
            objects: u32::MAX,
            connections: 1,
        };
        let answers = stream.run(door).await?;
        self.all_heard(answers.0.len()).await?;
        let time = |asked: &super::stream::Asked| {
            let arrivals = self.heard.of(&asked.object);
            let arrived = arrivals.context("an event came and went")?.first;
            anyhow::Ok(arrived.saturating_duration_since(asked.begin))
        };
        let times: Vec<Duration> = answers.0.iter().map(time).collect::<Result<_, _>>()?;
        Times::new(times)
    }

    /// CPU µs an event, events a second, handshakes an event.
    async fn busy(&self, door: &Door, subject: &Process) -> anyhow::Result<(f64, f64, f64)> {
        self.heard.forget();
        let (cpu, handshakes) = (subject.cpu()?, self.kcp.handshakes());
        let begin = Instant::now();
        let answers = self.closed("busy", BUSY).run(door).await?;
        let last = self.all_heard(answers.0.len()).await?;
        let events = number(answers.0.len());
        let cpu = subject.cpu()?.saturating_sub(cpu).as_secs_f64() * 1e6 / events;
        let handshakes = number(self.kcp.handshakes() - handshakes) / events;
        let rate = events / last.saturating_duration_since(begin).as_secs_f64();
        Ok((cpu, rate, handshakes))
    }

    /// What waited while KCP was away, once it is back.
    async fn backlog(&mut self, door: &Door, subject: &Process) -> anyhow::Result<Backlog> {
        // What is under way from before would be counted with it.
        holds("what is confirmed arrives", CONFIRMED, || async { true }).await?;
        self.heard.forget();
        self.kcp.turn(State::Refusing).await?;
        let answers: Answers = self.closed("backlog", BACKLOG).run(door).await?;
        ensure!(answers.given_up() == 0, "reviews without an answer");
        // An event that was late anyway is not told twice.
        holds("KCP stays away", CONFIRMED, || async { true }).await?;
        let memory = mebibytes(subject.memory("VmRSS")?);
        let cpu = subject.cpu()?;
        self.kcp.turn(State::Up).await?;
        let last = self.all_heard(answers.0.len()).await?;
        let cpu = subject.cpu()?.saturating_sub(cpu);
        let arrivals = self.heard.all();
        let first = arrivals.iter().map(|it| it.first).min();
        let took = last.saturating_duration_since(first.context("no event")?);
        let events = number(answers.0.len());
        Ok(Backlog {
            events: answers.0.len(),
            cpu: cpu.as_secs_f64() * 1e6 / events,
            rate: events / took.as_secs_f64(),
            memory,
        })
    }

    fn closed(&self, prefix: &'static str, reviews: u32) -> Stream {
        Stream {
            prefix,
            reviews: self.stage.count(reviews),
            rate: 0,
            objects: u32::MAX,
            connections: CONNECTIONS,
        }
    }

    /// When the first event of the last of so many objects arrived.
    async fn all_heard(&self, objects: usize) -> anyhow::Result<Instant> {
        until("all objects are heard of", LONGEST, || async {
            let heard = self.heard.objects();
            ensure!(heard >= objects, "{heard} of {objects}");
            anyhow::Ok(())
        })
        .await?;
        let last = self.heard.all().iter().map(|it| it.first).max();
        last.context("no event")
    }
}

/// Milliseconds.
const IDLE: f64 = 50.0;
/// Reviews a second that are far from each other.
const IDLE_RATE: u32 = 25;
const BUSY: u32 = 5_000;
const BACKLOG: u32 = 20_000;
/// A little more than `--follow-up-delay` and what a confirmation takes.
const CONFIRMED: Duration = Duration::from_secs(7);
/// The watcher's back-off, and what delivering takes.
const LONGEST: Duration = Duration::from_secs(90);
