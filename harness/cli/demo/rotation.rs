//! The second act: a pull Secret changes on the control plane, and arrives on a runtime.
//!
//! Invariant: nobody touches the runtime; what is timed was read from its API server and from its webhook's answers.

use super::paint::{Paint, act};
use clusters::progress::Progress;
use clusters::setup::Setup;
use e2e::kcp::{Rotation, Stage};

/// Starts a control plane and its runtimes, changes the Secret, takes everything down unless `keep`.
///
/// # Errors
/// When something does not come up, or the change does not arrive.
pub(super) async fn play(
    progress: &Progress,
    setup: &Setup,
    keep: bool,
) -> anyhow::Result<Rotation> {
    let stage = Box::pin(Stage::start(progress, setup, keep)).await?;
    let rotation = progress
        .show("change the pull Secret on KCP", Box::pin(stage.rotate()))
        .await;
    let stopped = Box::pin(stage.stop()).await;
    let rotation = rotation?;
    stopped.map(|()| rotation)
}

/// For the screen, below that of the first act.
pub(super) fn render(rotation: &Rotation, paint: Paint) -> String {
    let Rotation { runtime, host, .. } = rotation;
    let lines = [
        format!("on KCP the pull Secret opens a further registry, {host}"),
        format!(
            "{:.1} s later {runtime} holds it, byte for byte",
            rotation.arrived.as_secs_f64()
        ),
        format!(
            "{:.1} s later its webhook gives the pull Secret to a Pod of {host}",
            rotation.decided.as_secs_f64()
        ),
    ];
    let aside = "a controller on KCP, the webhook on a runtime, nobody else";
    act("And from the control plane", aside, &lines, paint)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn says_what_arrived_where_and_when() {
        let rotation = Rotation {
            runtime: "one".to_owned(),
            host: "further.test".to_owned(),
            arrived: Duration::from_millis(320),
            decided: Duration::from_millis(680),
        };
        let screen = render(&rotation, Paint(false));
        for expected in ["0.3 s later one holds it", "0.7 s later", "further.test"] {
            assert!(screen.contains(expected), "{expected} in {screen}");
        }
        assert!(!screen.contains('\u{1b}'), "no colour was asked for");
    }
}
