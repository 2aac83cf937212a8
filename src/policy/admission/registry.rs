//! Manipulation 1: registry hosts of images are replaced.
//!
//! At CREATE every image of the Pod is looked at. On UPDATE only an image that this very request changed, and only new
//! ephemeral containers: rewriting anything else would restart running containers or be refused with 422
//! (product.md §1, *tried*).

use api::Feature;

use crate::image::Reference;

use super::overrides::Rewrite;
use super::patch::{PatchWriter, Path, Value};
use super::pod::{Container, ContainerList, Placed, Spec};
use super::{Configuration, Finding, Reason};

/// Rewrites the images of a Pod that is created.
pub(super) fn rewrite_all<'a>(
    configuration: &Configuration,
    spec: &'a Spec<'a>,
    patch: &mut PatchWriter,
    findings: &mut Vec<Finding<'a>>,
) {
    for placed in spec.started() {
        let reason = rewrite(configuration, placed.container);
        apply(placed, reason, patch, findings);
    }
}

/// The images as they will be. Where the feature is on, `findings` has one of it for each container, in their order.
pub(super) fn images<'i>(
    spec: &'i Spec<'_>,
    findings: &'i [Finding<'_>],
) -> impl Iterator<Item = &'i str> {
    let mut looked_at = findings
        .iter()
        .filter(|finding| finding.feature == Feature::RegistryRewrite);
    spec.started()
        .filter_map(move |placed| match looked_at.next().map(|it| &it.reason) {
            Some(Reason::ImageRewritten { to, .. }) => Some(to.as_str()),
            _ => placed.container.image.as_deref(),
        })
}

/// Rewrites the images that differ from the stored Pod's.
pub(super) fn rewrite_changed<'a>(
    configuration: &Configuration,
    spec: &'a Spec<'a>,
    old: &Spec<'_>,
    patch: &mut PatchWriter,
    findings: &mut Vec<Finding<'a>>,
) {
    for placed in spec.started() {
        let reason = if same_image(placed, old) {
            Reason::ImageUnchanged {
                container: &placed.container.name,
            }
        } else {
            rewrite(configuration, placed.container)
        };
        apply(placed, reason, patch, findings);
    }
}

/// Rewrites the images of the ephemeral containers that the stored Pod lacks.
pub(super) fn rewrite_new_ephemeral<'a>(
    configuration: &Configuration,
    spec: &'a Spec<'a>,
    old: &Spec<'_>,
    patch: &mut PatchWriter,
    findings: &mut Vec<Finding<'a>>,
) {
    for placed in spec.placed(ContainerList::Ephemeral) {
        let known = old
            .placed(ContainerList::Ephemeral)
            .any(|other| *other.container.name == *placed.container.name);
        let reason = if known {
            Reason::ImageUnchanged {
                container: &placed.container.name,
            }
        } else {
            rewrite(configuration, placed.container)
        };
        apply(placed, reason, patch, findings);
    }
}

fn apply<'a>(
    placed: Placed<'_, '_>,
    reason: Reason<'a>,
    patch: &mut PatchWriter,
    findings: &mut Vec<Finding<'a>>,
) {
    if let Reason::ImageRewritten { to, .. } = &reason {
        patch.replace(Path::Image(placed.into()), Value::Text(to));
    }
    findings.push(Finding::new(Feature::RegistryRewrite, reason));
}

fn same_image(placed: Placed<'_, '_>, old: &Spec<'_>) -> bool {
    old.placed(placed.list)
        .find(|other| *other.container.name == *placed.container.name)
        .is_some_and(|other| other.container.image == placed.container.image)
}

fn rewrite<'a>(configuration: &Configuration, container: &'a Container<'_>) -> Reason<'a> {
    let name = &*container.name;
    let image = container.image.as_deref().unwrap_or_default();
    let Ok(reference) = Reference::parse(image) else {
        return Reason::ImageUnreadable {
            container: name,
            image,
        };
    };
    match configuration.overrides.rewrite(&reference) {
        Rewrite::NoOverride => Reason::NoOverride {
            container: name,
            image,
        },
        Rewrite::Done => Reason::ImageRewrittenBefore { container: name },
        Rewrite::Unusable => Reason::OverrideUnusable {
            container: name,
            image,
        },
        Rewrite::To(to) => Reason::ImageRewritten {
            container: name,
            from: image,
            to,
        },
    }
}
