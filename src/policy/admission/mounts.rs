//! The feature `add-cluster-trust-bundle`: adds the ClusterTrustBundle as a projected volume, mounted read-only in
//! every container and init container.
//!
//! A container that has a mount or a block device at, above or below the path is not changed. A volume of another
//! owner with the same name is kept. The API server rejects a Pod with two mounts, or a mount and a device, at one
//! path.

use std::borrow::Cow;

use api::Feature;

use super::decision::Draft;
use super::patch::{Path, Value};
use super::pod::{BundleProjection, Container, Pod, Spec, Volume};
use super::{Configuration, Context, Reason, TrustBundle, TrustBundlePresence};

/// Adds the volume and its mounts where no conflict exists.
pub(super) fn mount<'a>(context: &Context<'a>, spec: &'a Spec<'a>, draft: &mut Draft<'a>) {
    let bundle = match mountable(context) {
        Ok(bundle) => bundle,
        Err(reason) => return draft.report(Feature::TrustBundle, reason),
    };
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let present = volumes.iter().find(|it| *it.name == *bundle.volume);
    if present.is_some_and(|volume| !is_ours(volume, bundle)) {
        let volume = &bundle.volume;
        return draft.report(Feature::TrustBundle, Reason::VolumeNameConflict { volume });
    }
    let mut mounted = false;
    for placed in spec.started() {
        let reason = mount_reason(placed.container, bundle);
        if reason.applied() {
            mounted = true;
            let entry = &bundle.mount_entry;
            match placed.container.volume_mounts {
                Some(_) => draft
                    .patch
                    .add(Path::MountsEnd(placed.into()), Value::Entry(entry)),
                None => draft
                    .patch
                    .add(Path::Mounts(placed.into()), Value::List(&[entry])),
            }
        }
        draft.report(Feature::TrustBundle, reason);
    }
    if mounted && present.is_none() {
        let entry = &bundle.volume_entry;
        match spec.volumes {
            Some(_) => draft.patch.add(Path::VolumesEnd, Value::Entry(entry)),
            None => draft.patch.add(Path::Volumes, Value::List(&[entry])),
        }
        let (volume, bundle) = (&bundle.volume, &bundle.name);
        draft.report(Feature::TrustBundle, Reason::VolumeAdded { volume, bundle });
    }
}

/// Returns whether a Pod has the volume of the configured trust bundle, also if the bundle was deleted or the feature disabled.
#[must_use]
pub fn has_trust_bundle(configuration: &Configuration, pod: &Pod<'_>) -> bool {
    any_volume(configuration, pod, is_ours)
}

/// Returns whether a Pod has the volume with another bundle or path than the configured one, as a Pod from before a change of
/// the document.
#[must_use]
pub fn has_other_trust_bundle(configuration: &Configuration, pod: &Pod<'_>) -> bool {
    any_volume(configuration, pod, |it, bundle| {
        only_source(it).is_some() && !is_ours(it, bundle)
    })
}

/// Returns whether a volume with the name of the bundle's volume satisfies a condition.
fn any_volume(
    configuration: &Configuration,
    pod: &Pod<'_>,
    is: impl Fn(&Volume<'_>, &TrustBundle) -> bool,
) -> bool {
    let Some(Ok(bundle)) = configuration.trust_bundle() else {
        return false;
    };
    let mut volumes = pod.spec.volumes.iter().flatten();
    volumes.any(|it| *it.name == *bundle.volume && is(it, bundle))
}

fn mountable<'a>(context: &Context<'a>) -> Result<&'a TrustBundle, Reason<'a>> {
    let bundle = match context.configuration.trust_bundle() {
        None => return Err(Reason::TrustBundleNotConfigured),
        Some(Err(unusable)) => return Err(Reason::InvalidTrustBundleConfig { key: unusable.0 }),
        Some(Ok(bundle)) => bundle,
    };
    match context.trust_bundle {
        TrustBundlePresence::Present => Ok(bundle),
        TrustBundlePresence::Absent => Err(Reason::TrustBundleNotFound {
            bundle: &bundle.name,
        }),
        TrustBundlePresence::Unserved => Err(Reason::TrustBundleAPINotServed),
        // An API server that does not project bundles would reject the Pod, or the volume would hide the container's
        // own certificates.
        TrustBundlePresence::NotProjected | TrustBundlePresence::Unknown => {
            Err(Reason::TrustBundleNotProjected)
        }
    }
}

fn is_ours(volume: &Volume<'_>, bundle: &TrustBundle) -> bool {
    only_source(volume).is_some_and(|source| {
        source.name.as_deref() == Some(&bundle.name) && source.path.as_deref() == Some(&bundle.file)
    })
}

/// Returns the ClusterTrustBundle of a projected volume, if it is the only source.
fn only_source<'v>(volume: &'v Volume<'_>) -> Option<&'v BundleProjection<'v>> {
    let projected = volume.projected.as_ref()?;
    match projected.sources.as_deref()? {
        [only] => only.cluster_trust_bundle.as_ref(),
        _ => None,
    }
}

fn mount_reason<'a>(container: &'a Container<'_>, bundle: &'a TrustBundle) -> Reason<'a> {
    for mount in container.volume_mounts.iter().flatten() {
        let path = clean(&mount.mount_path);
        if *mount.name == *bundle.volume && path == bundle.mount_path.as_str() {
            return Reason::MountAlreadyPresent {
                container: &container.name,
            };
        }
        if touches(&path, &bundle.mount_path) {
            return Reason::MountPathConflict {
                container: &container.name,
                path: &mount.mount_path,
            };
        }
    }
    let mut devices = container.volume_devices.iter().flatten();
    match devices.find(|it| touches(&clean(&it.device_path), &bundle.mount_path)) {
        Some(device) => Reason::MountPathConflict {
            container: &container.name,
            path: &device.device_path,
        },
        None => Reason::TrustBundleMounted {
            container: &container.name,
            path: &bundle.mount_path,
        },
    }
}

/// Returns whether one cleaned path is at, above or below the other.
fn touches(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    long.strip_prefix(short)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || short == "/")
}

/// Returns the shortest equivalent path: without `//`, `.`, `..` and a trailing slash.
pub(super) fn clean(path: &str) -> Cow<'_, str> {
    // The check compares bytes. Nearly all paths are clean and short, and a search for characters would cost more.
    let mut parts = path.as_bytes().split(|&byte| byte == b'/');
    let is_absolute = parts.next() == Some(b"") && path.len() > 1;
    let is_clean = is_absolute && parts.all(|part| !matches!(part, b"" | b"." | b".."));
    if path == "/" || is_clean {
        return Cow::Borrowed(path);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    // A relative mount path is relative to the root, as in the container runtime.
    Cow::Owned(format!("/{}", parts.join("/")))
}
