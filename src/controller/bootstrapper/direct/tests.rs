//! Direct mode as a whole, against a control plane in process and runtimes over TLS on this machine.

use std::sync::Arc;

use super::pass::{Assignment, Common, pass};

mod changes;
mod clusters;
mod compatibility;
mod content;
mod deadline;
mod deletions;
mod failures;
mod gates;
mod kcp;
mod leaving;
mod obstacles;
mod rollouts;
mod settings;
mod settling;
mod skr;
mod succession;
mod trouble;
mod uninstall;
mod world;

fn size<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
    size_of::<F>()
}

/// Hundreds of passes wait for the control plane or for a place, and each holds its room from the beginning.
#[test]
fn a_pass_that_waits_is_small() {
    let pass =
        size(
            |common: Arc<Common>, it: Assignment| async move { pass(&common, it).await.map(drop) },
        );
    assert!(pass < 5 << 10, "{pass}");
}
