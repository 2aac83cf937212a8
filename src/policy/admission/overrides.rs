//! Registry overrides, with chains resolved when the document loads so that applying them twice changes nothing.

use std::collections::{BTreeMap, HashMap};

use crate::image::Reference;

const DOCKER_HUB: &str = "docker.io";

/// A text of at most so many bytes is no reference that is too long.
pub(super) const SURELY_SHORT: usize = 240;

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
    NoMatchingOverride,
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

    /// Every host with its replacement, in their order; `None` where it cannot be used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let mut all: Vec<_> = self.by_host.iter().collect();
        all.sort_unstable_by_key(|it| it.0);
        all.into_iter().map(|(host, to)| match to {
            Replacement::Prefix(prefix) => (&**host, Some(&**prefix)),
            Replacement::Unusable => (&**host, None),
        })
    }

    /// Whether the image may be the result of a rewrite.
    pub(super) fn have_given(&self, image: &str) -> bool {
        let mut all = self.by_host.values();
        all.any(|it| matches!(it, Replacement::Prefix(prefix) if starts_with(image, prefix)))
    }

    /// An image that is rewritten, if any is.
    pub(super) fn example(&self) -> Option<String> {
        let mut images = self.iter().map(|(host, _)| format!("{host}/any"));
        images.find(|image| {
            Reference::parse(image).is_ok_and(|it| matches!(self.rewrite(&it), Rewrite::To(_)))
        })
    }

    pub(super) fn rewrite(&self, image: &Reference<'_>) -> Rewrite {
        let prefix = match speaks_of(image, |host| self.by_host.get(host)) {
            None => return Rewrite::NoMatchingOverride,
            Some(Replacement::Unusable) => return Rewrite::Unusable,
            Some(Replacement::Prefix(prefix)) => prefix,
        };
        if starts_with(image.text(), prefix) {
            return Rewrite::Done;
        }
        let text = join(prefix, &image.full_path(), image.suffix());
        // Prefix and image are valid, so what they make together is, if it is not too long: a repository may have 255
        // bytes, and the grammar may imply a `library/`.
        if text.len() > SURELY_SHORT && Reference::parse(&text).is_err() {
            return Rewrite::Unusable;
        }
        debug_assert!(Reference::parse(&text).is_ok(), "{text}");
        Rewrite::To(text)
    }
}

/// What speaks of the image's registry: found by the host as written, or by what the grammar means by it.
fn speaks_of<T>(image: &Reference<'_>, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    image.written_domain().and_then(&find).or_else(|| {
        let implied = image.domain() == DOCKER_HUB;
        implied.then(|| find(DOCKER_HUB)).flatten()
    })
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
        let next = speaks_of(&reference, |host| written.get_key_value(host));
        let Some((next, prefix)) = next else {
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The repository may have 255 bytes, with the part of the prefix that is no host and an implied `library/`.
    #[rstest]
    #[case::host("mirror.io", "a/", 253, true)]
    #[case::host_and_path("mirror.io/cache", "a/", 247, true)]
    #[case::host_and_path_too_long("mirror.io/cache", "a/", 248, false)]
    #[case::path_alone("mirror", "a/", 246, true)]
    #[case::path_alone_too_long("mirror", "a/", 247, false)]
    #[case::implied_library("index.docker.io", "", 247, true)]
    #[case::implied_library_too_long("index.docker.io", "", 248, false)]
    fn a_rewritten_image_is_valid_or_unusable(
        #[case] prefix: &str,
        #[case] folder: &str,
        #[case] letters: usize,
        #[case] expected: bool,
    ) {
        let written = BTreeMap::from([("a.io".to_owned(), prefix.to_owned())]);
        let (overrides, _) = Overrides::resolve(&written).unwrap();
        let image = format!("a.io/{folder}{}:1", "x".repeat(letters));
        let rewritten = overrides.rewrite(&Reference::parse(&image).unwrap());
        match rewritten {
            Rewrite::To(text) => assert!(expected && Reference::parse(&text).is_ok(), "{text}"),
            other => assert_eq!((other, expected), (Rewrite::Unusable, false)),
        }
    }
}
