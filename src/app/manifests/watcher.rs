//! Manifests of the watcher: the files, and two objects that are generated from the input of the user: the Secret with the
//! certificates, and the webhook configuration of the Watchers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use api::names::SKR_NAMESPACE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use policy::change::{Endpoint, Registration, configuration};
use serde_json::{Value, json};
use watcher::delivery::KcpAddress;

use super::flags::{Flags, flag};
use super::template::{Settings, filled};
use super::{image, image_pull_secrets, namespace, secret_name, whole};
use crate::cli::watcher::{self as role, DeliveryMode};
use crate::{edge, watchers};

/// Image of the watcher in the files.
pub(crate) const IMAGE: &str = concat!(
    "ghcr.io/kyma-project/runtime-bootstrapper-watcher:",
    env!("CARGO_PKG_VERSION")
);

/// Default port of `https`.
const DEFAULT_PORT: u16 = 443;

/// Timeout of the webhook. A response takes a millisecond and never waits for KCP. The timeout only limits how long writes
/// wait while a node with a watcher fails. With the 15 s of the public watcher, each write would wait that long.
pub(crate) const TIMEOUT: u8 = 3;

/// Timeout of the webhook with `--delivery-mode=sync`, in which the response waits for KCP: the value of the public watcher.
const SYNC_TIMEOUT: u8 = 15;

const FILES: [&str; 6] = [
    include_str!("../../../deploy/watcher/serviceaccount.yaml"),
    include_str!("../../../deploy/watcher/priorityclass.yaml"),
    include_str!("../../../deploy/watcher/service.yaml"),
    include_str!("../../../deploy/watcher/networkpolicy.yaml"),
    include_str!("../../../deploy/watcher/poddisruptionbudget.yaml"),
    include_str!("../../../deploy/watcher/deployment.yaml"),
];

/// Arguments of `manifests watcher`.
#[derive(Args, Debug)]
pub(crate) struct WatcherArgs {
    /// Address of KCP's gateway
    #[arg(long, value_name = "HOST[:PORT]", value_parser = address)]
    kcp_addr: String,
    /// File with the Watchers: a YAML list of {namespace, name, manager, resource: {group, version, resource}, field,
    /// labels}. If unset, no webhook configuration is printed
    #[arg(long, value_name = "FILE")]
    watchers_file: Option<PathBuf>,
    /// Directory with ca.crt, tls.crt and tls.key; the Secret and the caBundle are printed too. If unset, both must be created
    /// by other means
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Image of the watcher
    #[arg(long, value_parser = image, default_value = IMAGE)]
    image: String,
    /// Name of the Secret in the namespace with which the image is pulled
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    watcher_image_pull_secret: Option<String>,
    /// Namespace of the watcher; it must exist
    #[arg(long, value_parser = namespace, default_value = SKR_NAMESPACE)]
    namespace: String,
    /// Delivery of events: after the response to the API server (async) or before it (sync)
    #[arg(long, value_enum, default_value = "async")]
    delivery_mode: DeliveryMode,
    /// Restrict ingress to the tunnel of the API server (Gardener)
    #[arg(long)]
    gardener: bool,
    /// Further flags of the watcher, as in `-- --spool-fsync=always`
    #[arg(last = true, value_parser = flag)]
    flags: Vec<String>,
}

/// Returns the manifests as text.
///
/// # Errors
/// A file cannot be read, or its content cannot be used in the manifests.
pub(super) fn text(arguments: &WatcherArgs) -> anyhow::Result<String> {
    let registrations = match &arguments.watchers_file {
        Some(file) => watchers::read(file)?,
        None => Vec::new(),
    };
    let certificates = arguments.cert_dir.as_deref();
    let certificates = certificates.map(Certificates::read).transpose()?;
    let managers = managers(&registrations);
    let variables = managers.map(|it| json!([{ "name": "WATCHER_MANAGERS", "value": it }]));
    let mut documents = vec![deployed(arguments, variables)?];
    if let Some(certificates) = &certificates {
        documents.insert(0, certificates.secret(&arguments.namespace));
    }
    // Last, because the API server sends reviews as soon as it exists. Without Watchers it would have no entry, and
    // overwrite the configuration of an installer that creates it by other means.
    if !registrations.is_empty() {
        documents.push(registered(
            arguments,
            &registrations,
            certificates.as_ref(),
        )?);
    }
    Ok(documents.join("---\n"))
}

/// Returns the objects that the controller installs on a runtime, for this address of the gateway, without Secret and
/// webhook configuration. `receiver` is an additional receiver of heartbeats, and `interval` is their interval.
///
/// # Errors
/// The address cannot be used in the manifests.
pub(crate) fn objects(
    kcp_addr: &str,
    (image, image_pull_secret): (&str, Option<&str>),
    namespace: &str,
    (receiver, interval): (&str, Duration),
) -> anyhow::Result<Vec<Value>> {
    let arguments = WatcherArgs {
        kcp_addr: address(kcp_addr)?,
        watchers_file: None,
        cert_dir: None,
        image: image.to_owned(),
        watcher_image_pull_secret: image_pull_secret.map(str::to_owned),
        namespace: namespace.to_owned(),
        delivery_mode: DeliveryMode::Async,
        gardener: false,
        flags: vec![format!("--heartbeat-interval={}ms", interval.as_millis())],
    };
    let variables = json!([
        { "name": "WATCHER_HEARTBEAT_RECEIVERS", "value": receiver },
        { "name": "WATCHER_HEARTBEAT_RECEIVERS_FILE", "value": RECEIVERS_FILE },
        { "name": "WATCHER_WEBHOOK_ENTRIES_FILE", "value": ENTRIES_FILE },
    ]);
    super::parsed(&deployed(&arguments, Some(variables))?)
}

/// Path of the file with the managers of the Watchers, a key of the mounted Secret.
const RECEIVERS_FILE: &str = "/app/etc/ssl/managers";

/// The hashes of their webhook entries, a key of the mounted ConfigMap.
const ENTRIES_FILE: &str = "/app/etc/webhook-entries/entries";

/// Flags that other parts of the manifests depend on: ports, mounts, variables, the webhook configuration's timeout, and the
/// Pod's termination grace period.
const RESERVED: [&str; 12] = [
    "ca_cert",
    "delivery_mode",
    "health_probe_bind_address",
    "kcp_addr",
    "metrics_port",
    "shutdown_delay_duration",
    "spool_dir",
    "tls_cert",
    "tls_key",
    "version",
    "watchers_file",
    "webhook_port",
];

fn deployed(arguments: &WatcherArgs, variables: Option<Value>) -> Result<String, clap::Error> {
    Flags::<role::WatcherArgs>::read("watcher", &arguments.flags, &RESERVED)?;
    let address = &arguments.kcp_addr;
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    let port: u16 = port.unwrap_or(DEFAULT_PORT);
    let notify =
        (arguments.delivery_mode == DeliveryMode::Sync).then(|| "--delivery-mode=sync".to_owned());
    let flags: Vec<&String> = notify.iter().chain(&arguments.flags).collect();
    let settings = Settings::from([
        ("address", Some(json!(address))),
        ("flags", Some(json!(flags))),
        ("from", arguments.gardener.then(tunnel)),
        ("image", Some(json!(arguments.image))),
        (
            "imagePullSecrets",
            image_pull_secrets(arguments.watcher_image_pull_secret.as_deref()),
        ),
        ("port", Some(json!(port))),
        ("variables", variables),
    ]);
    Ok(filled(
        &FILES,
        (SKR_NAMESPACE, &arguments.namespace),
        &settings,
    ))
}

/// Returns the selector of the sender of reviews on Gardener: the API server is in another cluster, and this Pod is the end
/// of its tunnel.
fn tunnel() -> Value {
    json!([{
        "namespaceSelector": { "matchLabels": { "gardener.cloud/purpose": "kube-system" } },
        "podSelector": { "matchLabels": { "app": "vpn-shoot" } },
    }])
}

/// Returns the managers, each once; `None` if there are none.
fn managers(registrations: &[Registration]) -> Option<String> {
    let mut managers: Vec<&str> = registrations
        .iter()
        .map(|it| it.watcher.manager.as_str())
        .collect();
    managers.sort_unstable();
    managers.dedup();
    (!managers.is_empty()).then(|| managers.join(","))
}

fn registered(
    arguments: &WatcherArgs,
    registrations: &[Registration],
    certificates: Option<&Certificates>,
) -> anyhow::Result<String> {
    let endpoint = Endpoint {
        namespace: &arguments.namespace,
        authorities: certificates.map(|it| it.authorities.as_slice()),
        timeout_seconds: match arguments.delivery_mode {
            DeliveryMode::Async => TIMEOUT,
            DeliveryMode::Sync => SYNC_TIMEOUT,
        },
    };
    let configuration = configuration(registrations, &endpoint)?;
    let text = edge::yaml(&configuration)?;
    whole(&text).map_err(anyhow::Error::msg)
}

/// Content of the directory with certificates.
struct Certificates {
    authorities: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Certificates {
    fn read(folder: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let file = folder.join(name);
            std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
        };
        Ok(Self {
            authorities: read("ca.crt")?,
            certificate: read("tls.crt")?,
            key: read("tls.key")?,
        })
    }

    fn secret(&self, namespace: &str) -> String {
        let [authorities, certificate, key] =
            [&self.authorities, &self.certificate, &self.key].map(|it| STANDARD.encode(it));
        format!(
            "apiVersion: v1
kind: Secret
metadata:
  name: skr-webhook-tls
  namespace: {namespace}
  labels:
    app: skr-webhook
    operator.kyma-project.io/managed-by: kyma
type: Opaque
data:
  ca.crt: \"{authorities}\"
  tls.crt: \"{certificate}\"
  tls.key: \"{key}\"
"
        )
    }
}

/// Parses an address of KCP that can be used in the manifests.
fn address(text: &str) -> anyhow::Result<String> {
    KcpAddress::parse(text)?;
    whole(text).map_err(anyhow::Error::msg)
}
