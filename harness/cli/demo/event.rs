//! The third act: a change on a runtime is heard on KCP, also when KCP was away.
//!
//! Invariant: the change goes the whole way that it goes in production, through the watcher on the runtime's node and a
//! real gateway; what is timed is the user's write and what the listener handed over.

use std::time::Duration;

use super::paint::{Paint, act};
use clusters::progress::Progress;
use clusters::setup::Setup;
use e2e::watching::{Arrival, Stage};

/// Starts a control plane and a runtime, changes a Kyma twice, takes everything down unless `keep`.
///
/// # Errors
/// When something does not come up, or KCP does not hear of a change.
pub(super) async fn play(
    progress: &Progress,
    setup: &Setup,
    keep: bool,
) -> anyhow::Result<Arrival> {
    let stage = Box::pin(Stage::start(progress, setup, keep)).await?;
    let arrival = progress
        .show("change a Kyma on a runtime", Box::pin(stage.tell()))
        .await;
    let stopped = Box::pin(stage.stop()).await;
    let arrival = arrival?;
    stopped.map(|()| arrival)
}

/// For the screen, below that of the second act.
pub(super) fn render(arrival: &Arrival, paint: Paint) -> String {
    let Arrival {
        runtime, manager, ..
    } = arrival;
    let lines = [
        format!(
            "a Kyma is made on runtime {runtime}; the write took {}",
            milliseconds(arrival.write)
        ),
        format!(
            "within {} {manager} on KCP has heard of it, and from which runtime",
            milliseconds(arrival.heard)
        ),
        format!(
            "KCP goes away, another Kyma is made; the write took {}",
            milliseconds(arrival.write_meanwhile)
        ),
        format!(
            "{:.1} s after KCP's return {manager} has heard of that one, too",
            arrival.heard_after.as_secs_f64()
        ),
    ];
    let aside = "a watcher on a runtime, a gateway and a listener on KCP";
    act("And to the control plane", aside, &lines, paint)
}

fn milliseconds(span: Duration) -> String {
    format!("{:.0} ms", span.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_written_and_heard() {
        let arrival = Arrival {
            runtime: "one".to_owned(),
            manager: "lifecycle-manager",
            write: Duration::from_micros(4_400),
            heard: Duration::from_millis(42),
            write_meanwhile: Duration::from_millis(5),
            heard_after: Duration::from_millis(730),
        };
        let screen = render(&arrival, Paint(false));
        for expected in [
            "runtime one",
            "took 4 ms",
            "within 42 ms",
            "took 5 ms",
            "0.7 s",
        ] {
            assert!(screen.contains(expected), "{expected} in {screen}");
        }
    }
}
