//! Registry overrides, with chains resolved when the document loads so that applying them twice changes nothing.
//!
//! Source: product.md §1 manipulation 1.

use std::collections::{BTreeMap, HashMap};

use crate::image::Reference;

const DOCKER_HUB: &str = "docker.io";

/// Host → resolved replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overrides {
    by_host: HashMap<String, Replacement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Replacement {
    Prefix(String),
    /// What would come out is no image reference, so a Pod would be blocked by our fault.
    Unusable,
}

/// The hosts that lead back to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cycle(pub(super) Vec<String>);

/// What the overrides say of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// No override for its registry.
    NoOverride,
    /// It starts with its replacement already.
    Done,
    /// The new text.
    To(String),
    /// The override would give no valid reference.
    Unusable,
}

impl Overrides {
    /// Resolves every chain. The hosts whose replacement cannot be used come back beside the result.
    pub(super) fn resolve(
        written: &BTreeMap<String, String>,
    ) -> Result<(Self, Vec<String>), Cycle> {
        let mut unusable = Vec::new();
        let mut by_host = HashMap::with_capacity(written.len());
        for host in written.keys() {
            let replacement = follow(written, host)?;
            if replacement == Replacement::Unusable {
                unusable.push(host.clone());
            }
            by_host.insert(host.clone(), replacement);
        }
        Ok((Self { by_host }, unusable))
    }

    pub(super) fn rewrite(&self, image: &Reference<'_>) -> Rewrite {
        let key = override_key(image, |host| self.by_host.contains_key(host));
        let prefix = match key.and_then(|key| self.by_host.get(key)) {
            None => return Rewrite::NoOverride,
            Some(Replacement::Unusable) => return Rewrite::Unusable,
            Some(Replacement::Prefix(prefix)) => prefix,
        };
        if starts_with(image.text(), prefix) {
            return Rewrite::Done;
        }
        let text = join(prefix, &image.full_path(), image.suffix());
        if Reference::parse(&text).is_err() {
            return Rewrite::Unusable;
        }
        Rewrite::To(text)
    }
}

/// The key that speaks of the image's registry: the host as written, or what the grammar means by it.
fn override_key<'i>(image: &Reference<'i>, listed: impl Fn(&str) -> bool) -> Option<&'i str> {
    image
        .written_domain()
        .filter(|host| listed(host))
        .or_else(|| (image.domain() == DOCKER_HUB && listed(DOCKER_HUB)).then_some(DOCKER_HUB))
}

/// Applies overrides to a host until none applies any more.
fn follow(written: &BTreeMap<String, String>, host: &str) -> Result<Replacement, Cycle> {
    // A stand-in for "any image": resolving works on whole references, because the grammar reads a prefix differently
    // depending on what follows it (`mirror` alone is a path of docker.io).
    const ANY: &str = "any";
    let mut visited = vec![host.to_owned()];
    let mut text = match written.get(host) {
        Some(prefix) => join(prefix, ANY, ""),
        None => return Ok(Replacement::Unusable),
    };
    loop {
        let Ok(reference) = Reference::parse(&text) else {
            return Ok(Replacement::Unusable);
        };
        let next = override_key(&reference, |host| written.contains_key(host));
        let Some((next, prefix)) = next.and_then(|key| written.get_key_value(key)) else {
            break;
        };
        if starts_with(&text, prefix) {
            break;
        }
        let seen = visited.contains(next);
        visited.push(next.clone());
        if seen {
            return Err(Cycle(visited));
        }
        text = join(prefix, &reference.full_path(), "");
    }
    text.truncate(text.len() - ANY.len() - 1);
    Ok(Replacement::Prefix(text))
}

fn starts_with(image: &str, prefix: &str) -> bool {
    image
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn join(prefix: &str, path: &str, suffix: &str) -> String {
    let mut text = String::with_capacity(prefix.len() + path.len() + suffix.len() + 1);
    text.push_str(prefix);
    text.push('/');
    text.push_str(path);
    text.push_str(suffix);
    text
}
