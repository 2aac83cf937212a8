//! What a scenario runs in: one or more API servers, in containers or in this process.

use std::any::Any;
use std::path::Path;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::ObjectRef;
use crate::client::Client;

/// A cluster of an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cluster {
    /// The control plane.
    Kcp,
    /// A runtime; without a name, the one that the suite's scenarios are about.
    Runtime(Option<String>),
}

/// What a scenario runs in.
pub trait Environment: Any + Send + Sync {
    /// Client of a cluster.
    ///
    /// # Errors
    /// When the environment has no such cluster.
    fn client(&self, cluster: &Cluster) -> anyhow::Result<Client>;

    /// Waits until the product uses an object that a step changed or the end of a scenario restored.
    fn settle<'a>(&'a self, _object: &'a ObjectRef) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        futures::future::ready(Ok(())).boxed_local()
    }

    /// Writes what explains a failure into `folder`: objects, Events, product logs, node logs of every cluster. What
    /// cannot be read is noted there.
    fn diagnose<'a>(&'a self, _folder: &'a Path) -> LocalBoxFuture<'a, ()> {
        futures::future::ready(()).boxed_local()
    }
}
