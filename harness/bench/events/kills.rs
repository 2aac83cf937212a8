//! SIGKILL at random points of the watcher's life, under a stream of reviews; and beside it, whether KCP notices one
//! that is not started again.
//!
//! Invariant: each life has objects of its own, so that what one kill loses is not hidden by later changes; a life ends
//! anywhere from its first instruction on. KCP is up, refuses or hangs, as the dice fall. Before it, a watcher without a
//! spool is the control: if nothing of it is lost, the bench cannot see a loss.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::event::HEARTBEAT_INTERVAL;
use listener::RuntimeLiveness;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::kcp::{Heard, Kcp, Operator, State};
use super::model::{Dice, Model};
use super::report::{Row, number};
use super::reviews::{Asker, Door, request};
use super::stage::Stage;
use super::watcher::Program;
use testkit::until::until;

/// Measures it.
pub(super) async fn measure(stage: &Stage<'_>) -> anyhow::Result<Vec<Row>> {
    let (operator, heard) = Operator::listening(&stage.authority.pem).await?;
    let title = format!("{} times kill -9", stage.count(stage.kills));
    let killing = stage.progress.show(&title, kills(stage, &operator, &heard));
    let (killed, silent) = tokio::try_join!(killing, silence(stage, &operator))?;
    let mut rows = vec![killed];
    rows.extend(silent);
    Ok(rows)
}

async fn kills(stage: &Stage<'_>, operator: &Operator, heard: &Heard) -> anyhow::Result<Row> {
    let control = Killing {
        prefix: "control",
        kills: CONTROL,
        spool: false,
        patience: SETTLED,
    };
    let control = control.kill(stage, operator, heard).await?;
    ensure!(
        control.lost > 0,
        "without a spool nothing is lost: this would see no loss"
    );
    let kills = stage.count(stage.kills);
    let killing = Killing {
        prefix: "life",
        kills,
        spool: true,
        patience: PATIENCE,
    };
    let killed = killing.kill(stage, operator, heard).await?;
    let Killed {
        lost,
        model,
        disturbed,
        took,
    } = killed;
    let objects = model.objects();
    ensure!(objects > 0, "no review was answered");
    let figures = format!(
        "{lost} of {objects} objects; {} reviews answered, in {disturbed} lives; all known {:.1} s after the last start. \
         Without a spool: {} of {} in {CONTROL}",
        model.changes,
        took.as_secs_f64(),
        control.lost,
        control.model.objects()
    );
    Ok(Row::new(format!("final states lost, {kills} times kill -9"), figures).none(lost))
}

/// How to kill.
#[derive(Debug, Clone, Copy)]
struct Killing {
    /// What the objects' names begin with.
    prefix: &'static str,
    kills: u32,
    /// Whether the watcher has its folder.
    spool: bool,
    /// How long KCP may take in the end.
    patience: Duration,
}

/// What came of it.
struct Killed {
    lost: usize,
    model: Model,
    /// Lives in which a review was answered.
    disturbed: u32,
    took: Duration,
}

impl Killing {
    async fn kill(
        self,
        stage: &Stage<'_>,
        operator: &Operator,
        heard: &Heard,
    ) -> anyhow::Result<Killed> {
        let mut kcp = Kcp::before(&stage.authority, operator.address).await?;
        let program = Program::new(stage, "watcher", kcp.address)?;
        if !self.spool {
            program.forbid_spool()?;
        }
        let changing = Changing::start(&program.door, self.prefix);
        let mut dice = Dice(1);
        let mut disturbed = 0;
        for life in 0..self.kills {
            kcp.turn(any_state(&mut dice)).await?;
            changing.life.store(life, Ordering::Relaxed);
            let before = changing.answered.load(Ordering::Relaxed);
            let mut watcher = program.start(&[])?;
            let lives = match (life + 1) % LONG_EVERY {
                0 => LONG,
                _ => Duration::from_micros(dice.below(SHORT)),
            };
            sleep_until((Instant::now() + lives).into()).await;
            watcher.kill().await?;
            disturbed += u32::from(changing.answered.load(Ordering::Relaxed) > before);
        }
        let model = changing.end().await?;
        kcp.turn(State::Up).await?;
        let mut watcher = program.start(&[])?;
        let (lost, took) = model.settle(heard, self.patience).await;
        watcher.is_running()?;
        watcher.kill().await?;
        Ok(Killed {
            lost,
            model,
            disturbed,
            took,
        })
    }
}

fn any_state(dice: &mut Dice) -> State {
    match dice.below(10) {
        0 => State::Hanging,
        1 | 2 => State::Refusing,
        _ => State::Up,
    }
}

/// Who changes objects, whatever becomes of the watcher.
struct Changing {
    life: Arc<AtomicU32>,
    answered: Arc<AtomicU32>,
    tasks: JoinSet<anyhow::Result<Model>>,
    stop: CancellationToken,
}

impl Changing {
    fn start(door: &Door, prefix: &'static str) -> Self {
        let mut changing = Self {
            life: Arc::default(),
            answered: Arc::default(),
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        for number in 0..CHANGERS {
            let changer = Changer {
                prefix,
                door: door.clone(),
                life: changing.life.clone(),
                answered: changing.answered.clone(),
                dice: Dice(number),
                asker: None,
            };
            changing.tasks.spawn(changer.run(changing.stop.clone()));
        }
        changing
    }

    /// What KCP has to know.
    async fn end(mut self) -> anyhow::Result<Model> {
        self.stop.cancel();
        let mut all = Model::default();
        while let Some(model) = self.tasks.join_next().await {
            all.merge(model??);
        }
        Ok(all)
    }
}

struct Changer {
    prefix: &'static str,
    door: Door,
    life: Arc<AtomicU32>,
    answered: Arc<AtomicU32>,
    dice: Dice,
    asker: Option<Asker>,
}

impl Changer {
    async fn run(mut self, stop: CancellationToken) -> anyhow::Result<Model> {
        let mut model = Model::default();
        #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(pace.tick()).await.is_some() {
            let life = self.life.load(Ordering::Relaxed);
            let object = format!("{}-{life}-{}", self.prefix, self.dice.below(OBJECTS));
            match timeout(GONE, self.change(&object)).await {
                Ok(Ok(())) => {
                    model.note(&object, Instant::now());
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Err(error)) if error.downcast_ref::<io::Error>().is_none() => return Err(error),
                // Killed: before it listened, or before it had answered.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Ok(model)
    }

    async fn change(&mut self, object: &str) -> anyhow::Result<()> {
        let mut open = match self.asker.take() {
            Some(open) => open,
            None => self.door.enter().await?,
        };
        open.ask(&request(object)).await?;
        self.asker = Some(open);
        Ok(())
    }
}

/// When the operator sees that a watcher is gone, in heartbeats; and that another one is not.
async fn silence(stage: &Stage<'_>, operator: &Operator) -> anyhow::Result<Option<Row>> {
    if stage.quick {
        // The listener's clock cannot be compressed.
        return Ok(None);
    }
    let kcp = Kcp::before(&stage.authority, operator.address).await?;
    let calm = Program::new(stage, CALM, kcp.address)?;
    let mut calm = calm.start(&[])?;
    let gone = Program::new(stage, SILENT, kcp.address)?;
    let mut gone = gone.start(&["--heartbeat-interval=1s"])?;
    let known = || async { seen(operator, SILENT)?.since_heartbeat };
    until("a heartbeat", PATIENCE, known).await?;
    gone.kill().await?;
    let silent = || async { seen(operator, SILENT).filter(|it| it.silent) };
    let flagged = until("silent", 5 * HEARTBEAT_INTERVAL, silent).await?;
    let since = flagged.since_heartbeat.context("it had been heard")?;
    let alarm = seen(operator, CALM).is_none_or(|it| it.silent);
    calm.kill().await?;
    ensure!(!alarm, "a watcher that speaks is called silent");
    let heartbeats = number(since.as_secs() / HEARTBEAT_INTERVAL.as_secs());
    let figures = format!(
        "{heartbeats} heartbeats of {} s: {:.1} s after its last one; one that lives is not",
        HEARTBEAT_INTERVAL.as_secs(),
        since.as_secs_f64()
    );
    Ok(Some(
        Row::new("killed watcher is called silent after", figures)
            .beside(String::new(), "never".to_owned())
            .at_most(heartbeats, HEARTBEATS, " heartbeats"),
    ))
}

fn seen(operator: &Operator, runtime: &str) -> Option<RuntimeLiveness> {
    let all = operator.liveness.snapshot();
    all.into_iter().find(|it| it.runtime_id.as_str() == runtime)
}

/// Missed.
const HEARTBEATS: f64 = 3.0;
const CALM: &str = "watcher-calm";
const SILENT: &str = "watcher-silent";
/// Lives are shorter than that, evenly, in microseconds: some end before the process listens.
const SHORT: u64 = 200_000;
/// So many lives last until KCP is told for the second time.
const LONG_EVERY: u32 = 100;
const LONG: Duration = Duration::from_secs(6);
const CHANGERS: u64 = 4;
/// Of each life.
const OBJECTS: u64 = 16;
/// Between two reviews of one who changes.
const PACE: Duration = Duration::from_millis(2);
/// No answer takes so long.
const GONE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(2);
/// Kills of a watcher that keeps nothing, to see that a loss is seen.
const CONTROL: u32 = 50;
/// Longer than events in memory wait.
const SETTLED: Duration = Duration::from_secs(10);
