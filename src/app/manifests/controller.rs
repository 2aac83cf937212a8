//! The controller's manifests.

use api::kcp::KCP_NAMESPACE;
use api::names::PULL_SECRET;
use clap::Args;
use serde_json::json;

use super::flags::{Flags, flag};
use super::template::{Settings, filled};
use super::{image, image_pull_secrets, namespace, secret_name};
use crate::cli::controller as role;
use crate::cli::controller::Part;

/// The image that the files name.
const IMAGE: &str = concat!(
    "ghcr.io/kyma-project/runtime-bootstrapper-controller:",
    env!("CARGO_PKG_VERSION")
);

const COMMON: [&str; 6] = [
    include_str!("../../../deploy/controller/serviceaccount.yaml"),
    include_str!("../../../deploy/controller/rbac-common.yaml"),
    include_str!("../../../deploy/controller/service.yaml"),
    include_str!("../../../deploy/controller/networkpolicy.yaml"),
    include_str!("../../../deploy/controller/poddisruptionbudget.yaml"),
    include_str!("../../../deploy/controller/deployment.yaml"),
];

/// The additional permissions of the controller `direct`.
const DIRECT: &str = include_str!("../../../deploy/controller/rbac-direct.yaml");

/// Arguments of `manifests controller`.
#[derive(Args, Debug)]
pub(crate) struct ControllerArgs {
    /// Image of the controller
    #[arg(long, value_parser = image, default_value = IMAGE)]
    image: String,
    /// Name of the Secret in the namespace with which the image is pulled
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    controller_image_pull_secret: Option<String>,
    /// Name of the pull Secret on KCP
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    kcp_pull_secret_name: Option<String>,
    /// Namespace of the controller; it must exist
    #[arg(long, value_parser = namespace, default_value = KCP_NAMESPACE)]
    namespace: String,
    /// Run the controller `direct` too, with permissions to read kubeconfigs
    #[arg(long)]
    direct: bool,
    /// Further flags of the controller, as in `-- --kcp-cluster-trust-bundle=NAME`
    #[arg(last = true, value_parser = flag)]
    flags: Vec<String>,
}

/// Flags that other parts of the manifests depend on: ports, the Lease's namespace, the replicas' own names.
const RESERVED: [&str; 5] = [
    "health_probe_bind_address",
    "kubeconfig",
    "leader_elect_identity",
    "metrics_bind_address",
    "namespace",
];

/// The manifests as text.
///
/// # Errors
/// A usage error: the controller would not start with these flags, or would lack rights for them.
pub(super) fn text(arguments: &ControllerArgs) -> Result<String, clap::Error> {
    let mut given = arguments.flags.clone();
    if let Some(name) = &arguments.kcp_pull_secret_name {
        given.push(format!("--kcp-pull-secret-name={name}"));
    }
    let flags = Flags::<role::ControllerArgs>::read("controller", &given, &RESERVED)?;
    let chosen = flags.gives("controllers");
    let is_direct = if chosen {
        flags.arguments.controllers.contains(Part::Direct)
    } else {
        arguments.direct
    };
    if arguments.direct && !is_direct {
        return Err(flags.conflict("--direct needs the part direct among --controllers"));
    }
    let controllers = match (chosen, is_direct) {
        (false, true) => Some(json!("--controllers=signal,direct")),
        (false, false) => None,
        (true, _) => {
            // A flag is one word, so it is the only one that begins so.
            let at = given.iter().position(|it| it.starts_with("--controllers"));
            at.map(|at| json!(given.remove(at)))
        }
    };
    let sources = &flags.arguments.sources;
    // Without a pull Secret to watch its right stays the default's: a rule without names would be a right to all Secrets.
    let secret = Some(sources.kcp_pull_secret_name.as_str()).filter(|it| !it.is_empty());
    let settings = Settings::from([
        ("controllers", controllers),
        ("flags", Some(json!(given))),
        ("image", Some(json!(arguments.image))),
        (
            "imagePullSecrets",
            image_pull_secrets(arguments.controller_image_pull_secret.as_deref()),
        ),
        ("config-map-names", Some(json!([sources.kcp_config_name]))),
        (
            "pull-secret-names",
            Some(json!([secret.unwrap_or(PULL_SECRET)])),
        ),
    ]);
    let mut files: Vec<&str> = COMMON.to_vec();
    if is_direct {
        files.insert(2, DIRECT);
    }
    Ok(filled(
        &files,
        (KCP_NAMESPACE, &arguments.namespace),
        &settings,
    ))
}
