//! An image reference equals its parts byte for byte, and its normalized form is a reference with the same meaning.

use policy::image::Reference;

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(reference) = Reference::parse(text) else {
        return;
    };
    let domain = reference.written_domain();
    let slash = if domain.is_some() { "/" } else { "" };
    let (path, suffix) = (reference.path(), reference.suffix());
    let parts = [domain.unwrap_or_default(), slash, path, suffix];
    assert_eq!(parts.concat(), text);
    let tag = reference.tag().map(|tag| format!(":{tag}"));
    let digest = reference.digest().map(|digest| format!("@{digest}"));
    let rest = [tag, digest].map(Option::unwrap_or_default);
    assert_eq!(rest.concat(), suffix);

    let meant = format!("{}/{}{suffix}", reference.domain(), reference.full_path());
    // With the implicit parts of the grammar, a repository may be longer than the maximum.
    let Ok(again) = Reference::parse(&meant) else {
        assert!(reference.full_path().len() > path.len(), "{meant}");
        return;
    };
    assert_eq!(again.domain(), reference.domain());
    assert_eq!(again.full_path(), reference.full_path());
    assert_eq!(again.suffix(), suffix);
}
