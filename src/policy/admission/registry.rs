//! The feature `alter-img-registry`: replaces registry hosts of images.
//!
//! At CREATE all images of the Pod are processed, including images that are mounted as volumes. On UPDATE only images
//! of containers that the request changed, and only new ephemeral containers, are processed. Other changes would
//! restart running containers or be rejected with 422.

use std::collections::HashMap;

use api::Feature;

use super::decision::Draft;
use super::patch::{Path, Value};
use super::pod::{Container, ContainerList, Spec};
use super::{Configuration, Finding, Reason};

/// The use of an image in a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum User<'a> {
    /// The container with this name runs the image.
    #[strum(to_string = "container {0}")]
    Container(&'a str),
    /// The volume with this name contains the image.
    #[strum(to_string = "volume {0}")]
    Volume(&'a str),
}

/// Rewrites the images of a new Pod.
pub(super) fn rewrite_all<'a>(
    configuration: &Configuration,
    spec: &'a Spec<'a>,
    draft: &mut Draft<'a>,
) {
    for placed in spec.started() {
        let reason = rewrite(configuration, placed.container);
        apply(Path::Image(placed.into()), reason, draft);
    }
    for (index, name, image) in spec.image_volumes() {
        let reason = configuration.overrides.rewrite(User::Volume(name), image);
        apply(Path::VolumeImage(index), reason, draft);
    }
}

/// Returns the images after the rewrite. If the feature is enabled, `findings` contains one finding of it for each
/// image, in the same order.
pub(super) fn images<'i>(
    spec: &'i Spec<'_>,
    findings: &'i [Finding<'_>],
) -> impl Iterator<Item = &'i str> {
    let mut looked_at = findings
        .iter()
        .filter(|finding| finding.feature == Feature::RegistryRewrite);
    let run = spec
        .started()
        .map(|placed| placed.container.image.as_deref());
    let mounted = spec.image_volumes().map(|(_, _, image)| Some(image));
    run.chain(mounted)
        .filter_map(move |written| match looked_at.next().map(|it| &it.reason) {
            Some(Reason::ImageRewritten { to, .. }) => Some(to.as_str()),
            _ => written,
        })
}

/// Rewrites the images that differ from the images of the stored Pod.
pub(super) fn rewrite_changed<'a>(
    configuration: &Configuration,
    spec: &'a Spec<'a>,
    old: &Spec<'_>,
    draft: &mut Draft<'a>,
) {
    let init = images_by_name(old, ContainerList::Init);
    let main = images_by_name(old, ContainerList::Main);
    for placed in spec.started() {
        let old = match placed.list {
            ContainerList::Init => &init,
            ContainerList::Main | ContainerList::Ephemeral => &main,
        };
        let old = old.get(&*placed.container.name);
        let reason = if old == Some(&placed.container.image.as_deref()) {
            Reason::ImageUnchanged {
                container: &placed.container.name,
            }
        } else {
            rewrite(configuration, placed.container)
        };
        apply(Path::Image(placed.into()), reason, draft);
    }
}

/// Rewrites the images of the ephemeral containers that the stored Pod does not have.
pub(super) fn rewrite_new_ephemeral<'a>(
    configuration: &Configuration,
    spec: &'a Spec<'a>,
    old: &Spec<'_>,
    draft: &mut Draft<'a>,
) {
    let old = images_by_name(old, ContainerList::Ephemeral);
    for placed in spec.placed(ContainerList::Ephemeral) {
        let reason = if old.contains_key(&*placed.container.name) {
            Reason::ImageUnchanged {
                container: &placed.container.name,
            }
        } else {
            rewrite(configuration, placed.container)
        };
        apply(Path::Image(placed.into()), reason, draft);
    }
}

fn apply<'a>(at: Path<'_>, reason: Reason<'a>, draft: &mut Draft<'a>) {
    if let Reason::ImageRewritten { to, .. } = &reason {
        draft.patch.replace(at, Value::Text(to));
    }
    draft.report(Feature::RegistryRewrite, reason);
}

/// Returns the images of a list by container name. Of equal names, the first is used. A map is necessary, because a
/// client may send thousands of containers.
fn images_by_name<'s>(
    spec: &'s Spec<'_>,
    list: ContainerList,
) -> HashMap<&'s str, Option<&'s str>> {
    let mut images = HashMap::new();
    for placed in spec.placed(list) {
        let image = placed.container.image.as_deref();
        images.entry(&*placed.container.name).or_insert(image);
    }
    images
}

fn rewrite<'a>(configuration: &Configuration, container: &'a Container<'_>) -> Reason<'a> {
    let image = container.image.as_deref().unwrap_or_default();
    let user = User::Container(&container.name);
    configuration.overrides.rewrite(user, image)
}
