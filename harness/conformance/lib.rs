//! Whether clusters are as a landscape's scenario file says: reads the file, checks the clusters of kubeconfigs, writes reports.
//!
//! A run creates namespaces of its own and removes them; it changes nothing else. It needs nothing of the harness but
//! kubeconfigs, so that it checks the clusters of a landscape owner as it checks local ones.
//! [`Scenario::load`] reads a file, [`Run`] checks clusters, [`Report`] says what was found.

#![expect(
    clippy::must_use_candidate,
    reason = "a value that is not used does no harm"
)]

mod causes;
mod cluster;
mod configuration;
mod control_plane;
mod events;
#[cfg(test)]
mod fixture;
mod install;
mod model;
pub mod objects;
mod readable;
mod report;
mod requests;
mod run;
mod runtime;
mod scenario;
mod workloads;

pub use cluster::Endpoint;
pub use install::Installation;
pub use model::{Content, ControlPlane, Landscape, Mode, Trust, Watcher, Workload, schema};
pub use readable::readable;
pub use report::{
    Check, ClusterReport, Failure, Family, Moment, Outcome, PodReport, Report, Verdict, line,
};
pub use run::{KCP, Options, Run};
pub use scenario::{Manifest, Scenario};
