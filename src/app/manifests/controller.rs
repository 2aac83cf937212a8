//! Manifests of the controller.

use api::kcp::KCP_NAMESPACE;
use api::names::PULL_SECRET;
use clap::Args;
use serde_json::json;

use super::flags::{Flags, flag};
use super::template::{Settings, filled};
use super::{host, image, image_pull_secrets, namespace, secret_name};
use crate::cli::controller as role;
use crate::cli::controller::Part;
use crate::compose::controller::settings;

/// Image of the controller in the files.
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

/// Additional permissions of the controller `direct`.
const DIRECT: &str = include_str!("../../../deploy/controller/rbac-direct.yaml");

/// Additional permissions of the controller `watchers`.
const WATCHERS: &str = include_str!("../../../deploy/controller/rbac-watchers.yaml");

/// CA of the watchers.
const PKI: &str = include_str!("../../../deploy/controller/watcher-pki.yaml");

/// Watcher for heartbeats, and the objects that route heartbeats to the leader.
const HEARTBEATS: &str = include_str!("../../../deploy/controller/heartbeats.yaml");

/// Sample gateway of KCP for watchers.
const GATEWAY: &str = include_str!("../../../deploy/controller/gateway.yaml");

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
    /// Run the controller `watchers` too, with permissions for VirtualServices and Certificates, and their CA
    #[arg(long)]
    watchers: bool,
    /// Also print samples of an Istio Gateway with this host, and of an AuthorizationPolicy
    #[arg(long, value_name = "HOST", value_parser = host, requires = "watchers")]
    watcher_gateway_host: Option<String>,
    /// Further flags of the controller, as in `-- --kcp-cluster-trust-bundle=NAME`
    #[arg(last = true, value_parser = flag)]
    flags: Vec<String>,
}

/// Flags on which other parts of the manifests depend: ports, the namespace of the Lease, the names of the replicas.
const RESERVED: [&str; 6] = [
    "health_probe_bind_address",
    "heartbeat_bind_address",
    "kubeconfig",
    "leader_elect_identity",
    "metrics_bind_address",
    "namespace",
];

/// Returns the manifests as text.
///
/// # Errors
/// A usage error: the controller would not start with these flags, or would lack permissions for them.
pub(super) fn text(arguments: &ControllerArgs) -> Result<String, clap::Error> {
    let mut given = arguments.flags.clone();
    if let Some(name) = &arguments.kcp_pull_secret_name {
        given.push(format!("--kcp-pull-secret-name={name}"));
    }
    let flags = Flags::<role::ControllerArgs>::read("controller", &given, &RESERVED)?;
    settings::installed(&flags.arguments).map_err(|error| flags.conflict(&format!("{error:#}")))?;
    let is_chosen = flags.gives("controllers");
    let optional = [
        (Part::Watchers, arguments.watchers, "watchers", WATCHERS),
        (Part::Direct, arguments.direct, "direct", DIRECT),
    ];
    let runs = |part, is_wanted| {
        if is_chosen {
            flags.arguments.controllers.contains(part)
        } else {
            is_wanted
        }
    };
    let mut files: Vec<&str> = COMMON.to_vec();
    let mut controllers = vec!["signal"];
    for (part, is_wanted, name, permissions) in optional {
        if runs(part, is_wanted) {
            files.insert(2, permissions);
            controllers.insert(1, name);
        } else if is_wanted {
            let message = format!("--{name} needs the controller {name} among --controllers");
            return Err(flags.conflict(&message));
        }
    }
    let controllers = if is_chosen {
        // A flag is one word, so it is the only word with this prefix.
        let at = given.iter().position(|it| it.starts_with("--controllers"));
        at.map(|at| json!(given.remove(at)))
    } else {
        (controllers.len() > 1).then(|| json!(format!("--controllers={}", controllers.join(","))))
    };
    let sources = &flags.arguments.sources;
    // Without a pull Secret to watch, the permission contains the default name, because a rule without names would permit
    // access to all Secrets.
    let secret = Some(sources.kcp_pull_secret_name.as_str()).filter(|it| !it.is_empty());
    let mut settings = Settings::from([
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
    if files.contains(&WATCHERS) {
        files.extend(on_kcp(arguments));
        settings.extend(watcher_settings(arguments, &flags.arguments.watchers));
    }
    Ok(filled(
        &files,
        (KCP_NAMESPACE, &arguments.namespace),
        &settings,
    ))
}

/// Returns the manifests on KCP for the controller `watchers`.
fn on_kcp(arguments: &ControllerArgs) -> Vec<&'static str> {
    let sample = arguments.watcher_gateway_host.as_ref().map(|_| GATEWAY);
    [PKI, HEARTBEATS].into_iter().chain(sample).collect()
}

/// Returns the settings for Istio. By default the Gateways are in the namespace of the controller.
fn watcher_settings(arguments: &ControllerArgs, watchers: &role::WatcherArgs) -> Settings {
    let (gateways, istio) = (&watchers.istio_gateway_namespace, &watchers.istio_namespace);
    let differs = *gateways != arguments.namespace;
    let (algorithm, size) = watchers.certificate_key_algorithm.algorithm().fields();
    let mut settings = Settings::from([
        ("gateway-namespace", differs.then(|| json!(gateways))),
        ("istio-namespace", Some(json!(istio))),
        ("key-algorithm", Some(json!(algorithm))),
        ("key-size", Some(json!(size))),
    ]);
    if let Some(host) = &arguments.watcher_gateway_host {
        let account = "istio-ingressgateway-service-account";
        let principal = format!("cluster.local/ns/{istio}/sa/{account}");
        settings.extend([
            ("gateway-hosts", Some(json!([host]))),
            ("gateway-principals", Some(json!([principal]))),
        ]);
    }
    settings
}
