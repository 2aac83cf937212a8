//! Says when configuration, pull Secret and trust bundle are not of one version: readiness detail, metric, and one log
//! line when it begins and when it ends.
//!
//! It never makes the process not ready: a whole version, or at least what is there, is in force all the same.

use chassis::readiness::Condition;

use super::Watches;

pub(super) async fn tell(watches: &Watches) {
    // Subscribed before the first look, so that no change falls in between.
    let mut revisions = watches.knowledge.revisions();
    let mut teller = Teller::new(watches);
    loop {
        teller.look();
        if revisions.changed().await.is_err() {
            // The knowledge outlives the watches, so this is never reached while anybody cares.
            std::future::pending::<()>().await;
        }
    }
}

pub(super) struct Teller<'a> {
    watches: &'a Watches,
    condition: Condition,
    waits: bool,
}

impl<'a> Teller<'a> {
    pub(super) fn new(watches: &'a Watches) -> Self {
        Self {
            watches,
            condition: watches.readiness.condition("configuration-version"),
            waits: false,
        }
    }

    pub(super) fn look(&mut self) {
        let waiting = self.watches.knowledge.waiting();
        let text = waiting.map(|it| it.to_string());
        let waits = text.is_some();
        if waits && !self.waits {
            tracing::info!(why = text, "configuration revision mismatch");
        } else if !waits && self.waits {
            tracing::info!("configuration revision complete");
        }
        self.waits = waits;
        self.watches
            .metrics
            .configuration_revision_mismatch
            .set(i64::from(waits));
        match text {
            Some(text) => self.condition.detail(text),
            None => self.condition.ready(),
        }
    }
}
