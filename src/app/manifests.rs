//! Role `manifests`: what `kubectl apply -f -` needs to install a role.
//!
//! The files under `deploy/` are the one source; they are complete as they are, and this prints them with settings put in
//! where the files mark a place (`template`), so that the comments stay. Invariants: a value is checked against the grammar
//! of what it is before it is put in; and `---` is between documents and nowhere else (installers split there).
//!
//! Deliberately absent: Namespace and ConfigMap, which belong to the installer.

use std::process::ExitCode;

use api::names::{PULL_SECRET, SKR_NAMESPACE};
use clap::{Args, Subcommand};
use policy::image::Reference;
use serde_json::{Value, json};

use self::template::{Settings, filled};
use crate::edge;

mod controller;
mod flags;
mod names;
mod template;
mod watcher;

pub(crate) use controller::ControllerArgs;
pub(crate) use names::{is_label, is_subdomain};
pub(crate) use watcher::WatcherArgs;

#[cfg(test)]
mod tests;

/// The webhook's image that the files name.
pub(crate) const WEBHOOK_IMAGE: &str = concat!(
    "ghcr.io/kyma-project/runtime-bootstrapper-webhook:",
    env!("CARGO_PKG_VERSION")
);

/// The parts of role `webhook`. The webhook configuration comes last: with it Pods are sent, so whatever answers has to
/// be on its way.
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
    /// What to install
    #[command(subcommand)]
    role: Role,
}

/// What can be installed.
#[derive(Debug, Subcommand)]
enum Role {
    /// The webhook, for a runtime cluster
    Webhook(WebhookArgs),
    /// The controller, for KCP; its custom resource is printed by `crds`
    Controller(ControllerArgs),
    /// The watcher, for a runtime cluster
    Watcher(WatcherArgs),
}

/// What may differ from one installation to another.
#[derive(Args, Debug)]
struct WebhookArgs {
    /// The webhook's image
    #[arg(long, value_parser = image, default_value = WEBHOOK_IMAGE)]
    image: String,
    /// The Secret that the image is pulled with, if its registry is private; it has to be in the namespace
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    pull_secret: Option<String>,
    /// The Secret that is copied to namespaces, if the configuration's `imagePullSecret.name` is another one
    #[arg(long, value_name = "NAME", value_parser = secret_name, default_value = PULL_SECRET)]
    copied_secret: String,
    /// The namespace, which has to exist
    #[arg(long, value_parser = namespace, default_value = SKR_NAMESPACE)]
    namespace: String,
}

/// Why a value cannot be part of the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum ValueError {
    #[error("not an image reference, such as registry.example.com/path/webhook:1.0.0")]
    Image,
    #[error("not a name of a Secret: lower-case letters, digits, `-` and `.`")]
    SecretName,
    #[error("not a name of a namespace: at most 63 lower-case letters, digits and `-`")]
    Namespace,
    #[error("contains `---`, where installers split the manifests")]
    Separator,
}

/// Prints the manifests.
///
/// # Errors
/// A file that an argument names cannot be used, or standard output cannot be written.
pub(crate) fn run(arguments: &ManifestsArgs) -> anyhow::Result<ExitCode> {
    let text = match &arguments.role {
        Role::Webhook(arguments) => webhook(arguments),
        Role::Controller(arguments) => controller::text(arguments)?,
        Role::Watcher(arguments) => watcher::text(arguments)?,
    };
    edge::write_out(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn webhook(arguments: &WebhookArgs) -> String {
    let WebhookArgs {
        image,
        pull_secret,
        copied_secret,
        namespace,
    } = arguments;
    // The default stays beside another name, because the configuration document may change to it and back while we run.
    let mut copied = vec![PULL_SECRET];
    if copied_secret != PULL_SECRET {
        copied.push(copied_secret);
    }
    let settings = Settings::from([
        ("image", Some(json!(image))),
        (
            "imagePullSecrets",
            image_pull_secrets(pull_secret.as_deref()),
        ),
        ("pull-secret-names", Some(json!(copied))),
    ]);
    filled(&WEBHOOK, (SKR_NAMESPACE, namespace), &settings)
}

/// An empty list would make every `kubectl apply` a change.
fn image_pull_secrets(name: Option<&str>) -> Option<Value> {
    Some(json!([{ "name": name? }]))
}

/// The same as objects, for an installer that is no person.
///
/// # Errors
/// A value cannot be part of the manifests.
pub(crate) fn webhook_objects(
    image_reference: &str,
    pull_secret: Option<&str>,
    namespace_name: &str,
) -> anyhow::Result<Vec<Value>> {
    let text = webhook(&WebhookArgs {
        image: image(image_reference)?,
        pull_secret: pull_secret.map(secret_name).transpose()?,
        copied_secret: PULL_SECRET.to_owned(),
        namespace: namespace(namespace_name)?,
    });
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    // A document of comments only.
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

fn image(text: &str) -> Result<String, ValueError> {
    Reference::parse(text).map_err(|_| ValueError::Image)?;
    whole(text)
}

fn secret_name(text: &str) -> Result<String, ValueError> {
    if !names::is_subdomain(text) {
        return Err(ValueError::SecretName);
    }
    whole(text)
}

fn namespace(text: &str) -> Result<String, ValueError> {
    if !names::is_label(text) {
        return Err(ValueError::Namespace);
    }
    whole(text)
}

/// A text without what installers split at.
fn whole(text: &str) -> Result<String, ValueError> {
    if text.contains("---") {
        return Err(ValueError::Separator);
    }
    Ok(text.to_owned())
}
