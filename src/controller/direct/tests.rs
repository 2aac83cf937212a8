//! Direct mode as a whole, against a control plane in process and runtimes over TLS on this machine.

use std::sync::Arc;

use super::pass::{Assignment, Common, pass};

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
mod leaving;
mod obstacles;
mod planning;
mod rollouts;
mod runtime_cluster;
mod settings;
mod settling;
mod succession;
mod uninstall;

fn size<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
    size_of::<F>()
}

/// Hundreds of passes wait for the control plane or for a permit, and each holds its memory from the beginning.
#[test]
fn a_pass_that_waits_is_small() {
    let pass =
        size(
            |common: Arc<Common>, it: Assignment| async move { pass(&common, it).await.map(drop) },
        );
    assert!(pass < 5 << 10, "{pass}");
}
