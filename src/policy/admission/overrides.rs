//! Registry overrides. Chains are resolved when the document is loaded, so that applying overrides twice changes nothing.

use std::collections::{BTreeMap, HashMap};

use super::Reason;
use super::registry::User;
use crate::image::{OFFICIAL, Reference};

const DOCKER_HUB: &str = "docker.io";

/// Maximum size, in bytes, of a text that is certainly not too long for a reference.
pub(super) const SURELY_SHORT: usize = 240;

/// Map from host to resolved replacement. `None` stands for a replacement that does not yield an image reference, with
/// which the webhook would make the Pod invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overrides {
    by_host: HashMap<String, Option<Prefix>>,
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

impl Overrides {
    /// Resolves every chain. Also returns the hosts whose replacement cannot be used.
    pub(super) fn resolve(
        written: &BTreeMap<String, String>,
    ) -> Result<(Self, Vec<String>), Cycle> {
        let mut unusable = Vec::new();
        let mut by_host = HashMap::with_capacity(written.len());
        for host in written.keys() {
            let replacement = follow(written, host)?;
            if replacement.is_none() {
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
        all.into_iter().map(|(host, to)| (&**host, to.as_ref()))
    }

    /// Returns whether the image may be the result of a rewrite.
    pub(super) fn have_given(&self, image: &str) -> bool {
        let mut prefixes = self.by_host.values().flatten();
        prefixes.any(|prefix| starts_with(image, &prefix.text))
    }

    /// Returns an image that is rewritten, if there is one.
    pub(super) fn example(&self) -> Option<String> {
        let mut images = self.iter().map(|(host, _)| format!("{host}/any"));
        images.find(|image| self.rewrite(User::Volume(""), image).applied())
    }

    /// Returns the new text of an image, or the reason why the image is not rewritten.
    pub(super) fn rewrite<'a>(&self, user: User<'a>, image: &'a str) -> Reason<'a> {
        let Ok(reference) = Reference::parse(image) else {
            return Reason::InvalidImageReference { user, image };
        };
        let prefix = match speaks_of(&reference, |host| self.by_host.get(host)) {
            None => return Reason::NoMatchingOverride { user, image },
            Some(None) => return Reason::InvalidOverride { user, image },
            Some(Some(prefix)) => prefix,
        };
        if starts_with(image, &prefix.text) {
            return Reason::ImageAlreadyRewritten { user };
        }
        let path = reference.full_path();
        let is_official = prefix.is_through_hub && !path.contains('/');
        let namespace = if is_official { OFFICIAL } else { "" };
        let to = [&prefix.text, "/", namespace, &path, reference.suffix()].concat();
        // Prefix and image are valid, so the combined text is valid if it is not too long. A repository may have 255
        // bytes, and the grammar may add an implied `library/`.
        if to.len() > SURELY_SHORT && Reference::parse(&to).is_err() {
            return Reason::InvalidOverride { user, image };
        }
        debug_assert!(Reference::parse(&to).is_ok(), "{to}");
        Reason::ImageRewritten {
            user,
            from: image,
            to,
        }
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
fn follow(written: &BTreeMap<String, String>, host: &str) -> Result<Option<Prefix>, Cycle> {
    // Placeholder for any image. Chains are resolved for whole references, because the grammar parses a prefix
    // differently depending on the text after it (`mirror` alone is a path of docker.io).
    const ANY: &str = "any";
    let mut visited = vec![host.to_owned()];
    let Some(prefix) = written.get(host) else {
        return Ok(None);
    };
    let mut text = format!("{prefix}/{ANY}");
    let mut is_through_hub = false;
    loop {
        let Ok(reference) = Reference::parse(&text) else {
            return Ok(None);
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
        text = format!("{prefix}/{}", reference.path());
    }
    text.truncate(text.len() - ANY.len() - 1);
    Ok(Some(Prefix {
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
        let user = User::Volume("a");
        match overrides.rewrite(user, &image) {
            Reason::ImageRewritten { to, .. } => {
                assert!(expected && Reference::parse(&to).is_ok(), "{to}");
            }
            other => {
                let image = image.as_str();
                let unusable = Reason::InvalidOverride { user, image };
                assert_eq!((other, expected), (unusable, false));
            }
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
        let user = User::Volume("a");
        let rewritten = Reason::ImageRewritten {
            user,
            from: image,
            to: expected.to_owned(),
        };
        assert_eq!(overrides.rewrite(user, image), rewritten);
    }
}
