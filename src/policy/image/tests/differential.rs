//! Comparisons with two parsers of other projects. Inputs are skipped on which a parser is known to deviate from the
//! grammar of the distribution project, each with the reason.

use container_image_dist_ref::{ImgRef, digest::Digest};
use oci_spec::distribution::Reference as OciReference;
use proptest::prelude::*;

use crate::image::Reference;

/// Generates texts that are similar to the grammar, so that many of them are valid.
fn near_reference() -> impl Strategy<Value = String> {
    let domain = prop_oneof![
        4 => Just(String::new()),
        4 => "[a-z0-9]{1,4}(\\.[a-z0-9-]{1,4}){0,2}(:[0-9]{0,5})?/",
        1 => "[A-Za-z0-9._-]{1,8}(:[a-z0-9]{1,5})?/",
        1 => "\\[[a-fA-F0-9:]{0,9}\\](:[0-9]{1,5})?/",
        1 => prop::sample::select(vec!["docker.io/", "index.docker.io/", "localhost/", "LOCALHOST/"])
            .prop_map(str::to_owned),
    ];
    let path = prop_oneof![
        6 => "[a-z0-9]{1,4}((\\.|_|__|-{1,3})[a-z0-9]{1,3}){0,2}(/[a-z0-9]{1,4}){0,3}",
        2 => "[a-z0-9/._-]{0,12}",
        1 => "[a-zA-Z0-9/._-]{1,6}",
    ];
    let tag = prop_oneof![
        3 => Just(String::new()),
        3 => ":[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,6}",
        1 => ":[^/@:]{0,3}",
        1 => ":[a-z]{126,130}",
    ];
    let digest = prop_oneof![
        4 => Just(String::new()),
        2 => "@sha256:[a-f0-9]{64}",
        1 => "@sha(384|512):([a-f0-9]{96}|[a-f0-9]{128})",
        1 => "@sha256:[a-fA-F0-9]{63,65}",
        1 => "@[a-z+._0-9-]{1,8}:[a-f0-9]{30,34}",
    ];
    (domain, path, tag, digest)
        .prop_map(|(domain, path, tag, digest)| domain + &path + &tag + &digest)
}

/// Generates texts of the characters that are relevant for the grammar.
fn soup() -> impl Strategy<Value = String> {
    "[ab0AB./:@_\\[\\]-]{0,16}"
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![3 => near_reference(), 2 => soup()]
}

fn is_identifier(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'f' | b'0'..=b'9'))
}

/// Returns whether `container_image_dist_ref` deviates from the distribution project on an input.
fn raw_grammar_deviates(text: &str) -> bool {
    let first = text.split_once('/').map_or("", |(first, _)| first);
    // `ParseNormalizedNamed` rejects identifiers; the raw grammar does not distinguish them.
    is_identifier(text)
        // The parser accepts only valid IPv6 addresses, the grammar any digits and colons.
        || first.starts_with('[')
        // The parser ignores its limit of 128 bytes for a tag after a slash.
        || text.split([':', '@']).any(|part| part.len() > 128)
        // The parser accepts any algorithm of the OCI grammar. go-digest supports three algorithms, of which the
        // parser supports two.
        || text.split_once('@').is_some_and(|(_, digest)| {
            !digest.starts_with("sha256:") && !digest.starts_with("sha512:")
        })
}

/// Returns whether `oci_spec` deviates from the distribution project on an input.
fn oci_spec_deviates(text: &str) -> bool {
    let first = text.split_once('/').map_or("", |(first, _)| first);
    let digest = text.split_once('@').map_or("", |(_, digest)| digest);
    // The parser accepts an identifier as a name.
    is_identifier(text)
        // The parser uses a Unicode `\w`.
        || !text.is_ascii()
        // The parser treats an upper-case first component as a namespace of Docker Hub, where it is not a valid name.
        || (!first.contains(['.', ':']) && first.bytes().any(|byte| byte.is_ascii_uppercase()))
        // The parser does not support IPv6.
        || first.starts_with('[')
        // The parser accepts upper-case digits in a digest.
        || digest.bytes().any(|byte| byte.is_ascii_uppercase())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, max_global_rejects: 8192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_raw_grammar(text in texts()) {
        prop_assume!(!raw_grammar_deviates(&text));
        let (ours, judge) = (Reference::parse(&text), ImgRef::new(&text));
        prop_assert_eq!(ours.is_ok(), judge.is_ok(), "{:?}: {:?}", text, ours);
        if let (Ok(ours), Ok(judge)) = (ours, judge) {
            let name = text.strip_suffix(ours.suffix());
            let judged = judge.name();
            prop_assert_eq!(name, Some(judged.to_str()));
            prop_assert_eq!(ours.tag(), judge.tag());
            prop_assert_eq!(ours.digest(), judge.digest().map(Digest::to_str));
            // The raw grammar treats every first component that can be a host as a host.
            if let (Some(domain), Some(judge)) = (ours.written_domain(), judge.domain()) {
                prop_assert_eq!(domain, judge.to_str());
            }
        }
    }

    #[test]
    fn agrees_with_oci_spec_on_the_meaning(text in texts()) {
        prop_assume!(!oci_spec_deviates(&text));
        let (ours, judge) = (Reference::parse(&text), OciReference::try_from(text.as_str()));
        prop_assert_eq!(ours.is_ok(), judge.is_ok(), "{:?}: {:?}, {:?}", text, ours, judge);
        if let (Ok(ours), Ok(judge)) = (ours, judge) {
            prop_assert_eq!(ours.domain(), judge.registry());
            prop_assert_eq!(ours.full_path(), judge.repository());
            prop_assert_eq!(ours.digest(), judge.digest());
            // The parser adds the default tag.
            let tag = ours.tag().or(ours.digest().is_none().then_some("latest"));
            prop_assert_eq!(tag, judge.tag());
        }
    }

    #[test]
    fn the_parts_make_up_the_text(text in texts()) {
        if let Ok(reference) = Reference::parse(&text) {
            let domain = reference.written_domain().map(|domain| format!("{domain}/"));
            let parts = domain.unwrap_or_default() + reference.path() + reference.suffix();
            prop_assert_eq!(&parts, &text);
        }
    }

    /// Parsing the normalized name results in the same reference.
    #[test]
    fn the_name_is_canonical(text in texts()) {
        if let Ok(reference) = Reference::parse(&text) {
            let name = format!("{}/{}", reference.domain(), reference.full_path());
            let canonical = format!("{name}{}", reference.suffix());
            let again = Reference::parse(&canonical).expect("a canonical name is a reference");
            prop_assert_eq!(again.written_domain(), Some(reference.domain()));
            prop_assert_eq!(again.path(), reference.full_path());
            prop_assert_eq!(format!("{}/{}", again.domain(), again.full_path()), name);
        }
    }

    #[test]
    fn any_text_gets_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(Reference::parse(&text).is_err() || text.is_ascii());
    }
}

/// Without valid texts the strategies above would prove nothing.
#[test]
fn the_generated_texts_are_a_fair_mix() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    let mut runner = TestRunner::deterministic();
    let generated: Vec<String> = (0..2000)
        .map(|_| texts().new_tree(&mut runner).expect("a text").current())
        .collect();
    let valid = generated
        .iter()
        .filter(|text| Reference::parse(text).is_ok())
        .count();
    let judged = generated
        .iter()
        .filter(|text| !raw_grammar_deviates(text))
        .count();
    assert!((400..1600).contains(&valid), "{valid} of 2000 are valid");
    assert!(judged > 1000, "{judged} of 2000 are judged");
}
