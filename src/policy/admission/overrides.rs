//! Registry overrides. Chains are resolved when the document is loaded, so that applying overrides twice changes nothing.

use std::collections::{BTreeMap, HashMap};

use crate::image::{OFFICIAL, Reference};

const DOCKER_HUB: &str = "docker.io";

/// Maximum size, in bytes, of a text that is certainly not too long for a reference.
pub(super) const SURELY_SHORT: usize = 240;

/// Map from host to resolved replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overrides {
    by_host: HashMap<String, Replacement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Replacement {
    Prefix(Prefix),
    /// The result is not an image reference, so the webhook would make the Pod invalid.
    Unusable,
}

/// Text that replaces a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) text: String,
    /// Whether the chain leads through Docker Hub, where a repository without a namespace is in `library/`.
    pub(super) is_through_hub: bool,
}

/// The hosts of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cycle(pub(super) Vec<String>);

/// The result of the overrides for one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// There is no override for the registry of the image.
    NoMatchingOverride,
    /// The image starts with its replacement already.
    Done,
    /// The new text of the image.
    To(String),
    /// The result of the override would not be a valid reference.
    Unusable,
}

impl Overrides {
    /// Resolves every chain. Also returns the hosts whose replacement cannot be used.
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

    /// Returns every host with its replacement, in alphabetical order; `None` if the replacement cannot be used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Option<&Prefix>)> {
        let mut all: Vec<_> = self.by_host.iter().collect();
        all.sort_unstable_by_key(|it| it.0);
        all.into_iter().map(|(host, to)| match to {
            Replacement::Prefix(prefix) => (&**host, Some(prefix)),
            Replacement::Unusable => (&**host, None),
        })
    }

    /// Returns whether the image may be the result of a rewrite.
    pub(super) fn have_given(&self, image: &str) -> bool {
        let mut all = self.by_host.values();
        all.any(|it| matches!(it, Replacement::Prefix(prefix) if starts_with(image, &prefix.text)))
    }

    /// Returns an image that is rewritten, if there is one.
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
        if starts_with(image.text(), &prefix.text) {
            return Rewrite::Done;
        }
        let path = image.full_path();
        let is_official = prefix.is_through_hub && !path.contains('/');
        let namespace = if is_official { OFFICIAL } else { "" };
        let text = [&prefix.text, "/", namespace, &path, image.suffix()].concat();
        // Prefix and image are valid, so the combined text is valid if it is not too long. A repository may have 255
        // bytes, and the grammar may add an implied `library/`.
        if text.len() > SURELY_SHORT && Reference::parse(&text).is_err() {
            return Rewrite::Unusable;
        }
        debug_assert!(Reference::parse(&text).is_ok(), "{text}");
        Rewrite::To(text)
    }
}

/// Returns the override for the registry of the image: found by the written host, or by the host that the grammar implies.
fn speaks_of<T>(image: &Reference<'_>, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    image.written_domain().and_then(&find).or_else(|| {
        let implied = image.domain() == DOCKER_HUB;
        implied.then(|| find(DOCKER_HUB)).flatten()
    })
}

/// Applies overrides to a host until no override applies any more.
fn follow(written: &BTreeMap<String, String>, host: &str) -> Result<Replacement, Cycle> {
    // Placeholder for any image. Chains are resolved for whole references, because the grammar parses a prefix
    // differently depending on the text after it (`mirror` alone is a path of docker.io).
    const ANY: &str = "any";
    let mut visited = vec![host.to_owned()];
    let mut is_through_hub = false;
    let mut text = match written.get(host) {
        Some(prefix) => [prefix, "/", ANY].concat(),
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
        is_through_hub |= reference.path() == ANY && reference.domain() == DOCKER_HUB;
        text = [prefix, "/", reference.path()].concat();
    }
    text.truncate(text.len() - ANY.len() - 1);
    Ok(Replacement::Prefix(Prefix {
        text,
        is_through_hub,
    }))
}

fn starts_with(image: &str, prefix: &str) -> bool {
    image
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The repository may have 255 bytes, including the path in the prefix and an implied `library/`.
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

    const TO_HUB: &[(&str, &str)] = &[("a.io", "docker.io"), ("docker.io", "m.io")];
    const BY_LEGACY_HUB: &[(&str, &str)] = &[
        ("docker.io", "index.docker.io"),
        ("index.docker.io", "m.io/hub"),
    ];
    const FROM_HUB: &[(&str, &str)] = &[("docker.io", "b.io"), ("b.io", "m.io")];
    const PATH_TO_HUB: &[(&str, &str)] = &[("a.io", "docker.io/team"), ("docker.io", "m.io")];

    /// A chain has the result of its steps: `docker.io/app` is `docker.io/library/app`, and no other image is in `library`.
    #[rstest]
    #[case::official(TO_HUB, "a.io/app:1", "m.io/library/app:1")]
    #[case::not_official(TO_HUB, "a.io/team/app", "m.io/team/app")]
    #[case::of_the_hub(TO_HUB, "nginx", "m.io/library/nginx")]
    #[case::of_a_team_of_the_hub(TO_HUB, "team/app", "m.io/team/app")]
    #[case::official_once(BY_LEGACY_HUB, "nginx:1.27", "m.io/hub/library/nginx:1.27")]
    #[case::team_by_the_legacy_hub(BY_LEGACY_HUB, "docker.io/team/app", "m.io/hub/team/app")]
    #[case::legacy_hub_alone(BY_LEGACY_HUB, "index.docker.io/nginx", "m.io/hub/library/nginx")]
    #[case::hub_at_the_start(FROM_HUB, "nginx", "m.io/library/nginx")]
    #[case::other_host_at_the_start(FROM_HUB, "b.io/app", "m.io/app")]
    #[case::path_in_the_hub(PATH_TO_HUB, "a.io/app", "m.io/team/app")]
    fn a_chain_through_docker_hub_adds_library_where_the_grammar_implies_it(
        #[case] written: &[(&str, &str)],
        #[case] image: &str,
        #[case] expected: &str,
    ) {
        let written = written.iter();
        let written = written.map(|(host, prefix)| ((*host).to_owned(), (*prefix).to_owned()));
        let (overrides, _) = Overrides::resolve(&written.collect()).unwrap();
        let rewritten = overrides.rewrite(&Reference::parse(image).unwrap());
        assert_eq!(rewritten, Rewrite::To(expected.to_owned()));
    }
}
