//! `harness fleet`: a fleet as a process of its own, for benches and for a look at a controller by hand.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::net::TcpListener;

use super::{Conditions, Credentials, Fleet, FleetOptions, control};
use clusters::control_plane::{ControlPlane, Member};

/// What the fleet shall be.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// How many runtimes.
    #[arg(long, default_value_t = 10)]
    runtimes: usize,
    /// The port of all API servers; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The port of the control endpoint; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    control: u16,
    /// One round trip, in milliseconds.
    #[arg(long, default_value_t = 0)]
    latency: u64,
    /// How clients show who they are.
    #[arg(long, value_enum, default_value_t)]
    credentials: Credentials,
    /// Put the runtimes into the control plane of this kubeconfig.
    #[arg(long, value_name = "KUBECONFIG")]
    fill: Option<std::path::PathBuf>,
}

/// A fleet and where it is controlled.
pub struct Running {
    fleet: Arc<Fleet>,
    control: TcpListener,
}

/// Starts a fleet.
///
/// # Errors
/// When a port is taken, or the control plane refuses the runtimes.
pub async fn start(arguments: &FleetArgs) -> anyhow::Result<Running> {
    let options = FleetOptions {
        runtimes: arguments.runtimes,
        port: arguments.port,
        credentials: arguments.credentials,
        conditions: Conditions {
            latency: Duration::from_millis(arguments.latency),
            ..Conditions::default()
        },
    };
    let fleet = Arc::new(Fleet::start(options).await?);
    if let Some(path) = &arguments.fill {
        let kubeconfig = Kubeconfig::read_from(path)?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let control_plane = ControlPlane::prepare(Client::try_from(config)?, None).await?;
        let member = |number| {
            let kubeconfig = fleet.kubeconfig(number)?;
            anyhow::Ok(Member { number, kubeconfig })
        };
        let members: anyhow::Result<Vec<Member>> = (0..arguments.runtimes).map(member).collect();
        control_plane.fill(&members?).await?;
    }
    let control = TcpListener::bind(("127.0.0.1", arguments.control)).await?;
    Ok(Running { fleet, control })
}

impl Running {
    /// A line of JSON that says its ports.
    ///
    /// # Errors
    /// When the listener has none.
    pub fn announcement(&self) -> anyhow::Result<String> {
        let control = self.control.local_addr()?.port();
        Ok(json!({"port": self.fleet.port(), "control": control}).to_string())
    }

    /// Serves until it is ended from outside.
    ///
    /// # Errors
    /// When the control endpoint fails.
    pub async fn serve(self) -> anyhow::Result<()> {
        Ok(control::serve(self.fleet, self.control).await?)
    }
}
