//! Subcommand `manifests`: prints the objects that `kubectl apply -f -` needs to install a component.
//!
//! The files under `deploy/` are the only source. They are complete, and this subcommand prints them with settings inserted
//! at marked lines (`template`), so that the comments are kept. Invariants: a value is validated by its grammar before it
//! is inserted; and `---` occurs only between documents, because installers split there.
//!
//! Deliberately absent: Namespace and ConfigMap, which the installer creates.

use std::process::ExitCode;

use anyhow::Context as _;
use api::bootstrapper::{ResourceAmounts, RestartCause, WebhookResources, WebhookSettings};
use api::names::{CONFIG_MAP, PULL_SECRET, SKR_NAMESPACE};
use api::syntax::{is_label, is_subdomain};
use clap::{Args, Subcommand};
use policy::image::Reference;
use serde_json::{Value, json};

use self::flags::Flags;
use self::template::{Settings, filled};
use crate::amounts::{self, amounts};
use crate::cli::values::{NO_IMAGE, NO_NAMESPACE, landscape, log_filter, restart_cause, switch};
use crate::{cli, edge};

mod controller;
mod flags;
mod template;
mod watcher;

pub(crate) use controller::ControllerArgs;
pub(crate) use watcher::{
    IMAGE as WATCHER_IMAGE, TIMEOUT as REVIEW_TIMEOUT, WatcherArgs, objects as watcher_objects,
};

#[cfg(test)]
mod tests;

/// Image of the webhook in the files.
pub(crate) const WEBHOOK_IMAGE: &str = concat!(
    "ghcr.io/kyma-project/runtime-bootstrapper-webhook:",
    env!("CARGO_PKG_VERSION")
);

/// Manifests of the component `webhook`. The webhook configuration is last, because the API server sends Pods as soon as it
/// exists. By then the Deployment must have been created.
const WEBHOOK: [&str; 8] = [
    include_str!("../../deploy/webhook/serviceaccount.yaml"),
    include_str!("../../deploy/webhook/rbac.yaml"),
    include_str!("../../deploy/webhook/priorityclass.yaml"),
    include_str!("../../deploy/webhook/service.yaml"),
    include_str!("../../deploy/webhook/networkpolicy.yaml"),
    include_str!("../../deploy/webhook/poddisruptionbudget.yaml"),
    include_str!("../../deploy/webhook/deployment.yaml"),
    include_str!("../../deploy/webhook/mutatingwebhookconfiguration.yaml"),
];

/// Arguments of `manifests`.
#[derive(Args, Debug)]
pub(crate) struct ManifestsArgs {
    /// Component to install
    #[command(subcommand)]
    role: Role,
}

/// Components that can be installed.
#[derive(Debug, Subcommand)]
enum Role {
    /// Print the manifests of the webhook (for a runtime)
    Webhook(WebhookArgs),
    /// Print the manifests of the controller (for KCP); `crds` prints its custom resource
    Controller(ControllerArgs),
    /// Print the manifests of the watcher (for a runtime)
    Watcher(WatcherArgs),
}

/// Arguments of `manifests webhook`.
#[derive(Args, Debug)]
struct WebhookArgs {
    /// Image of the webhook
    #[arg(long, value_parser = image, default_value = WEBHOOK_IMAGE)]
    image: String,
    /// Name of the Secret in the namespace with which the image is pulled
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    webhook_image_pull_secret: Option<String>,
    /// Name of the landscape for set-landscape. If unset, the feature is skipped
    #[arg(long, value_name = "NAME", value_parser = landscape)]
    landscape: Option<String>,
    /// Name of the ConfigMap with the configuration document
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    config_map_name: Option<String>,
    /// Name of the pull Secret that is copied to namespaces; must be that of `imagePullSecret.name` of the configuration
    /// document, if set
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    image_pull_secret_name: Option<String>,
    /// Number of replicas, 2 to 10
    #[arg(long, value_parser = clap::value_parser!(i32).range(2..=10))]
    replicas: Option<i32>,
    /// Resource requests, as in `cpu=10m,memory=32Mi`
    #[arg(long, value_name = "AMOUNTS", value_parser = amounts)]
    requests: Option<ResourceAmounts>,
    /// Resource limits, as in `memory=128Mi`
    #[arg(long, value_name = "AMOUNTS", value_parser = amounts)]
    limits: Option<ResourceAmounts>,
    /// Filter of the log, as in `info,kube=warn`
    #[arg(long, value_name = "FILTER", value_parser = log_filter)]
    log_filter: Option<String>,
    /// Evict Pods that were created after the configuration that covers them and lack its changes
    #[arg(long)]
    evict_missed_pods: bool,
    /// Evict Pods that were created before a change of: trust-bundle, pull-secret, configuration
    #[arg(long, value_name = "CHANGES", value_delimiter = ',', value_parser = restart_cause)]
    restart_pods_on_change: Option<Vec<RestartCause>>,
    /// Keep a MutatingAdmissionPolicy that adapts Pods while no replica answers: on or off
    #[arg(long, value_name = "SWITCH", value_parser = switch)]
    mutating_admission_policy: Option<bool>,
    /// Additional Namespaces in which the webhook may evict Pods; they must exist
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    pod_restart_namespaces: Option<Vec<String>>,
    /// Namespace of the webhook; it must exist
    #[arg(long, value_parser = namespace, default_value = SKR_NAMESPACE)]
    namespace: String,
}

impl WebhookArgs {
    fn settings(&self) -> WebhookSettings {
        WebhookSettings {
            image: Some(self.image.clone()),
            image_pull_secret: self.webhook_image_pull_secret.clone(),
            landscape: self.landscape.clone(),
            config_map_name: self.config_map_name.clone(),
            pull_secret_name: self.image_pull_secret_name.clone(),
            replicas: self.replicas,
            resources: Some(WebhookResources {
                requests: self.requests.clone().unwrap_or_default(),
                limits: self.limits.clone().unwrap_or_default(),
            }),
            log_filter: self.log_filter.clone(),
            evict_missed_pods: Some(self.evict_missed_pods),
            restart_pods_on_change: self.restart_pods_on_change.clone(),
            pod_restart_namespaces: self.pod_restart_namespaces.clone(),
            mutating_admission_policy: self.mutating_admission_policy,
        }
    }
}

/// Prints the manifests.
///
/// # Errors
/// A file in an argument is not usable, or standard output cannot be written.
pub(crate) fn run(arguments: &ManifestsArgs) -> anyhow::Result<ExitCode> {
    let text = match &arguments.role {
        Role::Webhook(arguments) => webhook(&arguments.settings(), None, &arguments.namespace)?,
        Role::Controller(arguments) => controller::text(arguments)?,
        Role::Watcher(arguments) => watcher::text(arguments)?,
    };
    edge::write_out(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn webhook(
    settings: &WebhookSettings,
    named_secret: Option<&str>,
    namespace: &str,
) -> anyhow::Result<String> {
    let pull_secret_name = settings.pull_secret_name.as_deref();
    let config_map = settings.config_map_name.as_deref().unwrap_or(CONFIG_MAP);
    // The default name is also permitted, because the configuration document may change to it and back at any time.
    let mut copied = vec![PULL_SECRET];
    copied.extend(pull_secret_name.filter(|it| *it != PULL_SECRET));
    copied.extend(named_secret.filter(|it| Some(*it) != pull_secret_name && *it != PULL_SECRET));
    let flags = flags_of(settings);
    Flags::<cli::webhook::WebhookArgs>::read("webhook", &flags, &[]).map_err(|error| {
        // Without the text of clap about the usage.
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        anyhow::anyhow!(
            "arguments of the webhook: {}",
            first.trim_start_matches("error: ")
        )
    })?;
    let given = settings.resources.clone().unwrap_or_default();
    let resources = amounts::settings(&given.or(default_resources()));
    let mut values = Settings::from(resources.context("resources")?);
    values.extend([
        ("config-map-names", Some(json!([config_map]))),
        ("fallback-policy-verbs", fallback_policy_verbs(settings)),
        ("flags", Some(json!(flags))),
        ("image", settings.image.as_ref().map(|it| json!(it))),
        (
            "imagePullSecrets",
            image_pull_secrets(settings.image_pull_secret.as_deref()),
        ),
        ("pull-secret-names", Some(json!(copied))),
        ("replicas", settings.replicas.map(|it| json!(it))),
    ]);
    let mut text = filled(&WEBHOOK, (SKR_NAMESPACE, namespace), &values);
    for restarted in settings.pod_restart_namespaces.iter().flatten() {
        if restarted != namespace {
            let binding = restarter(&text, restarted, namespace);
            text.push_str(&binding.context("deploy/webhook/rbac.yaml")?);
        }
    }
    Ok(text)
}

fn has_fallback_policy(settings: &WebhookSettings) -> bool {
    settings.mutating_admission_policy == Some(true)
}

/// Returns the verbs for the policy. Without the policy the webhook only deletes an earlier policy.
fn fallback_policy_verbs(settings: &WebhookSettings) -> Option<Value> {
    let verbs = [
        "create", "delete", "get", "list", "patch", "update", "watch",
    ];
    has_fallback_policy(settings).then(|| json!(verbs))
}

/// Returns the settings that are flags of the webhook, if they differ from its defaults.
fn flags_of(settings: &WebhookSettings) -> Vec<String> {
    let causes = settings.restart_pods_on_change.iter().flatten();
    let causes: Vec<&str> = causes.map(|it| it.flag()).collect();
    let causes = (!causes.is_empty()).then(|| causes.join(","));
    let config_map = settings.config_map_name.as_deref();
    let pull_secret = settings.pull_secret_name.as_deref();
    let flags = [
        ("landscape", settings.landscape.as_deref()),
        ("config-map-name", config_map.filter(|it| *it != CONFIG_MAP)),
        (
            "image-pull-secret-name",
            pull_secret.filter(|it| *it != PULL_SECRET),
        ),
        ("log-filter", settings.log_filter.as_deref()),
        ("restart-pods-on-change", causes.as_deref()),
        (
            "mutating-admission-policy",
            has_fallback_policy(settings).then_some("on"),
        ),
    ];
    let flags = flags.into_iter();
    let flags = flags.filter_map(|(flag, value)| Some(format!("--{flag}={}", value?)));
    let evict = settings.evict_missed_pods == Some(true);
    flags
        .chain(evict.then(|| "--evict-missed-pods".to_owned()))
        .collect()
}

/// Returns the permission to evict Pods of a further namespace: the RoleBinding in the namespace of the webhook, copied.
fn restarter(text: &str, restarted: &str, namespace: &str) -> Option<String> {
    let mut documents = text.split("---\n");
    let binding = documents
        .find(|it| it.contains("\n  name: rt-bootstrapper-pod-restarter-rolebinding\n"))?;
    let [own, other] = [namespace, restarted].map(|it| format!("\n  namespace: {it}\n"));
    Some(format!("---\n{}", binding.replacen(&own, &other, 1)))
}

/// Returns the resources in the files, with which given limits and requests are compared.
fn default_resources() -> WebhookResources {
    let amounts = |cpu: Option<&str>, memory: &str| ResourceAmounts {
        cpu: cpu.map(str::to_owned),
        memory: Some(memory.to_owned()),
    };
    WebhookResources {
        requests: amounts(Some("10m"), "32Mi"),
        limits: amounts(None, "128Mi"),
    }
}

/// Returns the list, or `None` if there is no name. An empty list would cause a change at each `kubectl apply`.
fn image_pull_secrets(name: Option<&str>) -> Option<Value> {
    Some(json!([{ "name": name? }]))
}

/// Returns the manifests as objects, for the controller. The webhook may also copy the Secret `named_secret` of the
/// configuration document.
///
/// # Errors
/// A value cannot be used in the manifests.
pub(crate) fn webhook_objects(
    settings: &WebhookSettings,
    named_secret: Option<&str>,
    namespace: &str,
) -> anyhow::Result<Vec<Value>> {
    parsed(&webhook(settings, named_secret, namespace)?)
}

/// Parses the objects of manifests.
fn parsed(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
    // Removes documents that contain only comments.
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

fn image(text: &str) -> Result<String, &'static str> {
    checked(text, Reference::parse(text).is_ok(), NO_IMAGE)
}

fn secret_name(text: &str) -> Result<String, &'static str> {
    let message = "not a valid object name (RFC 1123 subdomain)";
    checked(text, is_subdomain(text), message)
}

fn host(text: &str) -> Result<String, &'static str> {
    let message = "not a valid host: expected a DNS name such as kcp.example.com, without a port";
    checked(text, is_subdomain(text), message)
}

fn namespace(text: &str) -> Result<String, &'static str> {
    checked(text, is_label(text), NO_NAMESPACE)
}

fn checked(text: &str, is_valid: bool, message: &'static str) -> Result<String, &'static str> {
    if !is_valid {
        return Err(message);
    }
    whole(text)
}

/// Checks that a text does not contain the document separator.
fn whole(text: &str) -> Result<String, &'static str> {
    if text.contains("---") {
        return Err("must not contain `---`, the separator of documents");
    }
    Ok(text.to_owned())
}
