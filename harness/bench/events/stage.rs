//! What all parts of the bench stand on: the programs, the cores, who signs for everybody, and how much is done.
//!
//! Invariant: the subject has a core to itself; everything else (API servers, KCP, senders) is this process, on the other.

use std::path::PathBuf;
use std::time::Duration;

use super::authority::{Authority, client};
use super::public::Setting;
use super::reviews::Door;
use super::roles::{Player, Role};
use crate::machine::Cores;
use clusters::progress::Progress;

/// The stage.
pub(super) struct Stage<'a> {
    pub(super) progress: &'a Progress,
    pub(super) product: PathBuf,
    /// This program.
    pub(super) harness: PathBuf,
    pub(super) cores: Cores,
    pub(super) authority: Authority,
    /// Only a look: a tenth of everything.
    pub(super) quick: bool,
    pub(super) kills: u32,
}

impl Stage<'_> {
    /// So many, or a tenth of it.
    pub(super) fn count(&self, full: u32) -> u32 {
        if self.quick { full.div_ceil(10) } else { full }
    }

    /// So long, or a tenth of it.
    pub(super) fn time(&self, full: Duration) -> Duration {
        if self.quick { full / 10 } else { full }
    }

    /// Starts the model of the public watcher, before this gateway of KCP.
    pub(super) async fn public(&self, kcp: std::net::SocketAddr) -> anyhow::Result<(Player, Door)> {
        let setting = Setting {
            authority: self.authority.pem.clone(),
            leaf: self.authority.leaf("public")?,
            kcp,
        };
        let player = Player::start(self, Role::Public, &setting).await?;
        let door = Door {
            address: player.address,
            tls: client(&self.authority.pem, None)?,
        };
        Ok((player, door))
    }
}
