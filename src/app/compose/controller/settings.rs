//! Conversion of flags to the settings of the modules.

use std::sync::Arc;

use api::bootstrapper::{WebhookResources, WebhookSettings};
use controller::certificates;
use controller::clients::ClientOptions;
use controller::direct::{DirectSettings, Installations, ManifestsError, Render};
use controller::runtime_watchers::{HeartbeatSettings, REMOVAL_DELAY, RuntimeWatcherSettings};
use controller::signal::{Limits, Place, SignalKeys, SignalSettings};
use controller::watchers::WatcherSettings;
use policy::certificates::CertificateSettings;
use policy::sync::ObjectNames;
use policy::sync::{Lanes, rollout};
use policy::watchers::HEARTBEAT_MANAGER;

use crate::cli::controller::{
    AckKey, ControllerArgs, DirectArgs, Part, SignalArgs, SignalKeysArg, SourceArgs,
    WebhookDefaults,
};
use crate::manifests;

fn named(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

pub(crate) fn sources(namespace: &str, arguments: &SourceArgs) -> ObjectNames {
    ObjectNames {
        namespace: namespace.to_owned(),
        configuration: arguments.kcp_config_name.clone(),
        pull_secret: named(&arguments.kcp_pull_secret_name),
        trust_bundle: named(&arguments.kcp_cluster_trust_bundle),
    }
}

pub(crate) fn names(arguments: &SourceArgs) -> ObjectNames {
    let source = named(&arguments.kcp_cluster_trust_bundle);
    ObjectNames {
        namespace: arguments.skr_namespace.clone(),
        pull_secret: named(&arguments.kcp_pull_secret_name)
            .map(|_| arguments.skr_pull_secret_name.clone()),
        trust_bundle: source
            .map(|source| named(&arguments.skr_cluster_trust_bundle).unwrap_or(source)),
        configuration: arguments.skr_config_name.clone(),
    }
}

pub(super) fn signal(arguments: &ControllerArgs) -> SignalSettings {
    SignalSettings {
        keys: keys(&arguments.signal),
        selector: arguments.signal.selector.clone(),
        per_second: arguments.signal.qps,
        namespace: arguments.namespace.clone(),
        has_direct: arguments.controllers.contains(Part::Direct),
        deletion_grace: arguments.sources.deletion_grace_period,
        limits: Limits {
            max_failures: arguments.direct.max_failures,
            ..Limits::default()
        },
        ..SignalSettings::default()
    }
}

fn keys(arguments: &SignalArgs) -> SignalKeys {
    match arguments.keys {
        SignalKeysArg::Label => SignalKeys::Only(Place::Label),
        SignalKeysArg::Annotation => SignalKeys::Only(Place::Annotation),
        SignalKeysArg::Both => SignalKeys::Both {
            obeyed: arguments.ack_key.map(|obeyed| match obeyed {
                AckKey::Label => Place::Label,
                AckKey::Annotation => Place::Annotation,
            }),
        },
    }
}

pub(super) fn direct(arguments: &ControllerArgs) -> DirectSettings {
    let given = &arguments.direct;
    let defaults = DirectSettings::default();
    // A single step has no gates, so that failures of a few runtimes do not block credentials for other runtimes.
    let has_steps = given.configuration_rollout_steps.len() > 1;
    DirectSettings {
        namespace: arguments.namespace.clone(),
        names: names(&arguments.sources),
        adopt: given.direct_selector.clone(),
        has_signal: arguments.controllers.contains(Part::Signal),
        signal_keys: keys(&arguments.signal),
        signal_selector: arguments.signal.selector.clone(),
        signals_per_second: arguments.signal.qps,
        resync: given.sync_period,
        deletion_grace: arguments.sources.deletion_grace_period,
        max_concurrent_reconciles: given.max_concurrent_reconciles.get(),
        rollouts: Lanes {
            configuration: rollout::Settings {
                steps: given.configuration_rollout_steps.clone(),
                max_failures: has_steps.then_some(given.max_failures),
                ..defaults.rollouts.configuration
            },
            webhook: rollout::Settings {
                steps: given.rollout_steps.clone(),
                soak: given.rollout_soak_duration,
                max_failures: Some(given.max_failures),
                ..defaults.rollouts.webhook
            },
        },
        ..DirectSettings::default()
    }
}

/// Returns the installations for runtimes. `manifests controller` also calls this, so that it does not print a Deployment
/// that cannot start.
///
/// # Errors
/// Flags are individually valid, but invalid in combination.
pub(crate) fn installed(
    arguments: &ControllerArgs,
) -> anyhow::Result<(Installations, RuntimeWatcherSettings)> {
    let certificates = &arguments.watchers;
    anyhow::ensure!(
        certificates.certificate_renew_before < certificates.certificate_duration,
        "--self-signed-cert-renew-before: less than --self-signed-cert-duration expected"
    );
    Ok((
        installations(&arguments.sources, &arguments.direct.webhook)?,
        runtime_watchers(arguments)?,
    ))
}

pub(super) fn watchers(arguments: &ControllerArgs) -> WatcherSettings {
    WatcherSettings {
        namespace: arguments.namespace.clone(),
        gateway_namespace: arguments.watchers.istio_gateway_namespace.clone(),
    }
}

pub(super) fn certificates(arguments: &ControllerArgs) -> certificates::Settings {
    let given = &arguments.watchers;
    certificates::Settings {
        kyma_namespace: arguments.namespace.clone(),
        gateway_namespace: given.istio_gateway_namespace.clone(),
        ca_secret: "klm-watcher".to_owned(),
        gateway_secret: "klm-istio-gateway".to_owned(),
        gateway_certificate: "klm-watcher-gateway".to_owned(),
        gateway_host: given
            .watcher_kcp_addr
            .as_ref()
            .map(|it| it.host().to_owned()),
        grace_period: given.gateway_certificate_grace_period,
        certificates: CertificateSettings {
            namespace: given.istio_namespace.clone(),
            issuer: "klm-watcher-selfsigned".to_owned(),
            algorithm: given.certificate_key_algorithm.algorithm(),
            duration: given.certificate_duration.as_secs(),
            renew_before: given.certificate_renew_before.as_secs(),
            skr_namespace: arguments.sources.skr_namespace.clone(),
        },
    }
}

/// The watcher that is installed on runtimes.
///
/// # Errors
/// The watcher cannot be installed with these flags.
fn runtime_watchers(arguments: &ControllerArgs) -> anyhow::Result<RuntimeWatcherSettings> {
    let given = &arguments.watchers;
    let namespace = arguments.sources.skr_namespace.clone();
    let (image, pull_secret) = (
        given.watcher_image.clone(),
        given.watcher_image_pull_secret.clone(),
    );
    let skr_namespace = namespace.clone();
    let heartbeats = HeartbeatSettings {
        address: given.heartbeat_bind_address,
        interval: given.watcher_heartbeat_interval,
    };
    let interval = heartbeats.interval;
    let render = move |address: &str| {
        let image = (image.as_str(), pull_secret.as_deref());
        let heartbeats = (HEARTBEAT_MANAGER, interval);
        manifests::watcher_objects(address, image, &namespace, heartbeats)
            .map_err(|error| format!("{error:#}"))
    };
    let address = given.watcher_kcp_addr.as_ref().map(ToString::to_string);
    let example = address.as_deref().unwrap_or("kcp.invalid");
    render(example).map_err(anyhow::Error::msg)?;
    Ok(RuntimeWatcherSettings {
        namespace: arguments.namespace.clone(),
        certificate_namespace: given.istio_namespace.clone(),
        skr_namespace,
        address,
        render: Arc::new(render),
        review_timeout_seconds: manifests::REVIEW_TIMEOUT,
        resync: arguments.direct.sync_period,
        removal_delay: REMOVAL_DELAY,
        heartbeats,
    })
}

/// Environment variable in which Kubernetes sets the host of the API server in each Pod.
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// Returns the options of the clients of runtimes. No runtime may be the control plane.
pub(super) fn clients(arguments: &DirectArgs) -> ClientOptions {
    let control_plane = std::env::var(SERVICE_HOST).ok();
    ClientOptions {
        allow_loopback: arguments.allow_loopback_runtimes,
        control_plane: control_plane.filter(|_| !arguments.allow_loopback_runtimes),
        ..ClientOptions::default()
    }
}

/// Returns the installations of the webhook on runtimes.
///
/// # Errors
/// The webhook cannot be installed with these flags.
pub(crate) fn installations(
    sources: &SourceArgs,
    defaults: &WebhookDefaults,
) -> Result<Installations, ManifestsError> {
    Installations::new(render(sources), webhook(sources, defaults))
}

/// Returns the settings of the webhook. It reads the objects by the names with which they are written.
fn webhook(sources: &SourceArgs, defaults: &WebhookDefaults) -> WebhookSettings {
    let WebhookDefaults {
        image,
        image_pull_secret,
        landscape,
        replicas,
        requests,
        limits,
        log_filter,
        evict_missed_pods,
        restart_pods_on_change,
        pod_restart_namespaces,
        mutating_admission_policy,
    } = defaults.clone();
    WebhookSettings {
        image: Some(image),
        image_pull_secret,
        landscape,
        config_map_name: Some(sources.skr_config_name.clone()),
        pull_secret_name: Some(sources.skr_pull_secret_name.clone()),
        replicas,
        resources: Some(WebhookResources {
            requests: requests.unwrap_or_default(),
            limits: limits.unwrap_or_default(),
        }),
        log_filter,
        evict_missed_pods: Some(evict_missed_pods),
        restart_pods_on_change,
        pod_restart_namespaces,
        mutating_admission_policy,
    }
}

/// Returns a function that renders the manifests of `manifests webhook`.
fn render(sources: &SourceArgs) -> Render {
    let namespace = sources.skr_namespace.clone();
    Arc::new(move |settings, named_secret| {
        manifests::webhook_objects(settings, named_secret, &namespace)
            .map_err(|error| format!("{error:#}"))
    })
}

#[cfg(test)]
mod tests;
