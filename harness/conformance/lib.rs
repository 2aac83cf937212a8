//! Checks whether clusters are as the scenario file of a landscape specifies: it reads the file, checks the clusters of
//! kubeconfigs, and writes reports.
//!
//! A run creates its own namespaces and removes them; it changes no other objects. It needs only kubeconfigs from the harness,
//! so that it checks the clusters of a landscape owner in the same way as local ones. [`Scenario::load`] reads a file, [`Run`]
//! checks clusters, and [`Report`] contains the results.

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
