//! The flow suite: a control plane with KEB, KIM and KLM as doubles, and a cluster for each Runtime that a scenario provisions.
//!
//! KCP has Istio, cert-manager, the controller with both modes, and KLM in a Pod. KEB and two KIMs run in this process. One KIM
//! installs the webhook and manages the Runtimes in mode signal; the other KIM does not install the webhook and manages all
//! others. The sources on KCP are those of a scenario file. Scenarios share all of this and run in parallel.

mod environment;
mod istio;
mod klm;
mod rotation;
mod shoots;
mod steps;
mod takeover;
mod view;
mod watchers;

pub use environment::Flow;
pub(crate) use environment::kyma_path;
pub(crate) use klm::{Reconciles, reconciles};
pub(crate) use rotation::Rotation;
pub use steps::STEPS;
pub(crate) use takeover::Installer;
pub(crate) use view::{Provisioned, View};
pub use view::{instance, start};

use std::time::Duration;

/// Scenario file of the suite's landscape.
const LANDSCAPE: &str = "eu-sovereign";
/// Intervals of the doubles, instead of ten to thirty seconds.
const DOUBLES_POLL: Duration = Duration::from_millis(500);
