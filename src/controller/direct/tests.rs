//! Tests of the whole controller `direct`, against an in-process control plane and runtimes over TLS on the local machine.

use std::sync::Arc;

use super::reconcile::{Common, ReconcileRequest, reconcile};

mod additional;
mod adoption;
mod changes;
mod clusters;
mod compatibility;
mod content;
mod deadline;
mod deletions;
mod env;
mod failures;
mod faults;
mod gates;
mod isolation;
mod leaving;
mod manifests;
mod next_leader;
mod observability;
mod obstacles;
mod planning;
mod reports;
mod restored;
mod revisions;
mod rollouts;
mod settings;
mod settling;
mod succession;
mod uninstall;
mod upgrades;

fn size<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
    size_of::<F>()
}

/// Hundreds of reconciles wait for KCP or for a permit of a limiter, and each allocates its memory at the start.
#[test]
fn a_reconcile_that_waits_is_small() {
    let future = size(|common: Arc<Common>, it: ReconcileRequest| async move {
        reconcile(&common, it).await.map(drop)
    });
    assert!(future < 5 << 10, "{future}");
}
