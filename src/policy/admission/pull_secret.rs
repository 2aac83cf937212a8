//! The feature `add-img-pull-secret`: adds the pull Secret to a Pod if a registry of the Pod needs credentials.
//!
//! A Secret that is not known yet counts as needed: the name of a missing Secret is harmless, and a missing name
//! cannot be added later because the field is immutable. A Secret that no kubelet can parse is never added, not even
//! with `inject: always`: the kubelet fails every pull of a Pod that names it, including public images. `always`
//! determines which Pods need the Secret, not whether the Secret can be used.

use api::Feature;
use api::config::Inject;

use crate::image::{Keyring, Reference};

use super::decision::Draft;
use super::patch::{Path, Value};
use super::pod::Spec;
use super::{Configuration, Context, Finding, Namespace, PullSecret, Reason, registry};

/// Appends the entry to the existing entries. Runs after the registry rewrite, because the new images count.
pub(super) fn inject<'a>(context: &Context<'a>, spec: &Spec<'_>, draft: &mut Draft<'a>) {
    let reason = reason(context, spec, &draft.findings);
    if reason.applied() {
        let entry = &context.configuration.pull_secret().entry;
        match spec.image_pull_secrets {
            Some(_) => draft.patch.add(Path::PullSecretsEnd, Value::Entry(entry)),
            None => draft.patch.add(Path::PullSecrets, Value::List(&[entry])),
        }
    }
    draft.report(Feature::PullSecret, reason);
}

fn reason<'a>(context: &Context<'a>, spec: &Spec<'_>, findings: &[Finding<'_>]) -> Reason<'a> {
    let rule = context.configuration.pull_secret();
    let secret = rule.name.as_str();
    let entries = spec.image_pull_secrets.as_deref().unwrap_or_default();
    if entries.iter().any(|entry| *entry.name == *secret) {
        return Reason::PullSecretAlreadyPresent { secret };
    }
    if !may_hold_credentials(context.configuration, context.namespace) {
        return Reason::NamespaceNotSelected;
    }
    match (rule.inject, context.pull_secret) {
        (_, PullSecret::Invalid) => Reason::InvalidPullSecret { secret },
        (Inject::Always, _) => Reason::PullSecretAlwaysInjected { secret },
        (Inject::Needed, PullSecret::Unknown) => Reason::PullSecretNotObserved { secret },
        (Inject::Needed, PullSecret::Known(keyring)) => {
            let mut images = registry::images(spec, findings);
            match images.find(|image| covers(keyring, image)) {
                Some(image) => Reason::PullSecretRequired {
                    secret,
                    image: image.to_owned(),
                },
                None => Reason::PullSecretNotRequired,
            }
        }
    }
}

/// Returns the reason why a stored Pod cannot pull an image that the webhook rewrites in this request; `None` if no
/// reason is known.
pub(super) fn not_named<'a>(
    context: &Context<'a>,
    spec: &Spec<'_>,
    findings: &[Finding<'_>],
) -> Option<Reason<'a>> {
    let secret = context.configuration.pull_secret().name.as_str();
    let mut entries = spec.image_pull_secrets.iter().flatten();
    let PullSecret::Known(keyring) = context.pull_secret else {
        return None;
    };
    if entries.any(|entry| *entry.name == *secret)
        || !may_hold_credentials(context.configuration, context.namespace)
    {
        return None;
    }
    findings.iter().find_map(|finding| match &finding.reason {
        Reason::ImageRewritten { to, .. } if covers(keyring, to) => {
            Some(Reason::PullSecretNotNamed {
                secret,
                image: to.clone(),
            })
        }
        _ => None,
    })
}

fn covers(keyring: &Keyring, image: &str) -> bool {
    Reference::parse(image).is_ok_and(|reference| keyring.covers(&reference))
}

/// Returns whether the selector allows credentials in the namespace. A namespace that is not known yet may get the
/// name of the Secret, which grants no access by itself. The Secret is copied only on the basis of known labels.
fn may_hold_credentials(configuration: &Configuration, namespace: Option<&Namespace>) -> bool {
    match (&configuration.pull_secret().namespaces, namespace) {
        (Some(selector), Some(namespace)) => selector.matches(&namespace.labels),
        (None, _) | (Some(_), None) => true,
    }
}
