//! Parts that are played by this program in processes of their own, so that the kernel accounts for them alone.
//!
//! Invariant: they talk through standard input and output, a line of JSON each: first what they are to play with, then
//! where they are; each further line is answered by what they have seen so far. They end with their input.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use clap::ValueEnum;
use listener::Authentication;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::kcp::{Operator, checked};
use super::public::{Public, Setting};
use super::stage::Stage;
use crate::process::Process;

/// Who is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// An operator on KCP, with our listener. It is told the authority, or that there is none and nobody is asked.
    Operator,
    /// The model of the public watcher.
    Public,
}

/// What an operator has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Events that came out of the stream.
    pub(super) events: u64,
    /// Runtimes that a heartbeat came from.
    pub(super) runtimes: usize,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Public => "public",
        }
    }

    /// Plays it until its input ends.
    pub(super) async fn play(self) -> anyhow::Result<()> {
        match self {
            Self::Operator => operate().await,
            Self::Public => {
                let setting: Setting = hear().await?.context("no setting")?;
                let public = Public::start(&setting).await?;
                say(&public.address)?;
                while hear::<()>().await?.is_some() {}
                Ok(())
            }
        }
    }
}

async fn operate() -> anyhow::Result<()> {
    let authority: Option<String> = hear().await?.context("no setting")?;
    let authentication = match authority {
        Some(authority) => checked(&authority)?,
        None => Authentication::None,
    };
    let events = Arc::new(AtomicU64::new(0));
    let counted = events.clone();
    let take = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let operator = Operator::start(authentication, take).await?;
    say(&operator.address)?;
    while hear::<()>().await?.is_some() {
        let known = operator.liveness.snapshot();
        let beats = known.iter().filter(|it| it.since_heartbeat.is_some());
        say(&Seen {
            events: events.load(Ordering::Relaxed),
            runtimes: beats.count(),
        })?;
    }
    Ok(())
}

/// The next line; `None` when there are no more.
async fn hear<T: DeserializeOwned>() -> anyhow::Result<Option<T>> {
    let next = || io::stdin().lines().next().transpose();
    let line: Option<String> = tokio::task::spawn_blocking(next).await??;
    Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
}

fn say(said: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(said)? + "\n";
    let mut output = io::stdout();
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}

/// A part that is played on the subject's core.
pub(super) struct Player {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
}

impl Player {
    /// Starts one, with what it is to play with.
    pub(super) async fn start(
        stage: &Stage<'_>,
        role: Role,
        setting: &impl Serialize,
    ) -> anyhow::Result<Self> {
        let role = role.name();
        let flags = ["bench", "events", "--role", role];
        let mut process = Process::converse(role, stage.cores.subject, &stage.harness, &flags)?;
        process.say(&serde_json::to_string(setting)?).await?;
        let address = serde_json::from_str(&process.hear().await?)?;
        Ok(Self { process, address })
    }

    /// What an operator has seen.
    pub(super) async fn seen(&mut self) -> anyhow::Result<Seen> {
        self.process.say("null").await?;
        Ok(serde_json::from_str(&self.process.hear().await?)?)
    }
}
