//! Tests of the images that a docker config covers, based on the source of the kubelet.

use rstest::rstest;
use serde_json::json;

use crate::image::{Keyring, KeyringError, Reference};

const PASSWORD: &str = "hunter2-do-not-print";

fn keyring(key: &str) -> Keyring {
    let document = json!({ "auths": { key: { "username": "u", "password": PASSWORD } } });
    Keyring::parse(document.to_string().as_bytes()).expect("a docker config")
}

#[rstest]
// Host only.
#[case("registry.example.com", "registry.example.com/a/b:1", true)]
#[case(
    "registry.example.com",
    "registry.example.com/a@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    true
)]
#[case("registry.example.com", "example.com/a", false)]
#[case("registry.example.com", "registry.example.com.evil.org/a", false)]
#[case("registry.example.com", "xregistry.example.com/a", false)]
#[case("registry.example.com", "nginx", false)]
#[case("registry.example.com", "Registry.example.com/a", false)]
#[case("registry.example.com/", "registry.example.com/a", true)]
// Scheme.
#[case("https://registry.example.com", "registry.example.com/a", true)]
#[case("http://registry.example.com", "registry.example.com/a", true)]
#[case("https://registry.example.com/", "registry.example.com/a", true)]
#[case("HTTPS://registry.example.com", "registry.example.com/a", false)]
#[case("oci://registry.example.com", "registry.example.com/a", false)]
// Prefix of the registry protocol.
#[case("https://registry.example.com/v1/", "registry.example.com/a", true)]
#[case("https://registry.example.com/v2/", "registry.example.com/a", true)]
#[case("registry.example.com/v2/", "registry.example.com/a", true)]
#[case("registry.example.com/v2/team", "registry.example.com/team/a", true)]
#[case("registry.example.com/v2/team", "registry.example.com/other/a", false)]
#[case("registry.example.com/v2", "registry.example.com/a", false)]
#[case("registry.example.com/v2", "registry.example.com/v2/a", true)]
#[case("registry.example.com/v3/", "registry.example.com/a", false)]
#[case("registry.example.com/v2/v1/", "registry.example.com/a", false)]
#[case("registry.example.com/v2/v1/", "registry.example.com/v1/a", true)]
// Port.
#[case("registry.example.com:5000", "registry.example.com:5000/a", true)]
#[case("registry.example.com:5000", "registry.example.com/a", false)]
#[case("registry.example.com", "registry.example.com:5000/a", false)]
#[case("registry.example.com:443", "registry.example.com/a", false)]
#[case(
    "https://registry.example.com:5000/v2/",
    "registry.example.com:5000/a",
    true
)]
#[case("registry.example.com:", "registry.example.com/a", true)]
#[case("localhost:5000", "localhost:5000/a", true)]
#[case("*:5000", "localhost:5000/a", true)]
#[case("localhost:*", "localhost:5000/a", false)]
// Path: a prefix of the text, not of components.
#[case("registry.example.com/team", "registry.example.com/team/a", true)]
#[case("registry.example.com/team", "registry.example.com/team", true)]
#[case("registry.example.com/team", "registry.example.com/teams/a", true)]
#[case("registry.example.com/team/", "registry.example.com/teams/a", false)]
#[case("registry.example.com/team/", "registry.example.com/team/a", true)]
#[case("registry.example.com/team/", "registry.example.com/team", false)]
#[case("registry.example.com/team/a", "registry.example.com/team/b", false)]
#[case("registry.example.com/team/*", "registry.example.com/team/a", false)]
#[case("registry.example.com/a:1", "registry.example.com/a:1", false)]
#[case("registry.example.com//a", "registry.example.com/a", false)]
#[case("registry.example.com/a?x=1", "registry.example.com/a/b", true)]
#[case("registry.example.com/a#x", "registry.example.com/a/b", true)]
#[case("user@registry.example.com", "registry.example.com/a", true)]
// Wildcards: each matches within one label.
#[case("*.example.com", "registry.example.com/a", true)]
#[case("*.example.com", "a.b.example.com/a", false)]
#[case("*.example.com", "example.com/a", false)]
#[case("*.*.example.com", "a.b.example.com/a", true)]
#[case("reg*.example.com", "registry.example.com/a", true)]
#[case("*try.example.com", "registry.example.com/a", true)]
#[case("r*g*y.example.com", "registry.example.com/a", true)]
#[case("r*g*z.example.com", "registry.example.com/a", false)]
#[case("reg*gistry.example.com", "registry.example.com/a", false)]
#[case("registry*.example.com", "registry.example.com/a", true)]
#[case("**.example.com", "registry.example.com/a", true)]
#[case("registry.*.com", "registry.example.com/a", true)]
#[case("registry.example.*", "registry.example.com/a", true)]
#[case("*.example.com:5000", "registry.example.com:5000/a", true)]
#[case("*.example.com:5000", "registry.example.com/a", false)]
#[case("*.example.com/team", "registry.example.com/team/a", true)]
#[case("*.example.com/team", "registry.example.com/other/a", false)]
#[case("*", "localhost/a", true)]
#[case("*", "registry.example.com/a", false)]
#[case("*.*", "docker.io/bash", true)]
#[case("registr?.example.com", "registry.example.com/a", false)]
// Docker Hub: the key of the default registry, the canonical name, and similar names.
#[case("https://index.docker.io/v1/", "nginx", true)]
#[case("https://index.docker.io/v1/", "bitnami/redis:7", true)]
#[case("https://index.docker.io/v1/", "docker.io/bash", true)]
#[case("https://index.docker.io/v1/", "index.docker.io/bash", true)]
#[case("https://index.docker.io/v1/", "registry-1.docker.io/bash", false)]
#[case("https://index.docker.io/v1/", "registry.example.com/a", false)]
#[case("https://index.docker.io/v1/", "localhost:5000/a", false)]
#[case("https://index.docker.io/v1/", "docker.io:443/bash", false)]
#[case("https://index.docker.io/v1/", "[::1]/a", false)]
// The kubelet checks only for a dot or a colon, so it treats these two as Docker Hub.
#[case("https://index.docker.io/v1/", "localhost/a", true)]
#[case("https://index.docker.io/v1/", "FOO/a", true)]
#[case("index.docker.io", "nginx", true)]
#[case("index.docker.io/v2/", "nginx", true)]
#[case("http://index.docker.io", "nginx", true)]
#[case("index.docker.io/v1", "nginx", false)]
#[case("index.docker.io/library", "nginx", false)]
#[case("index.docker.io:443", "nginx", false)]
#[case("*.docker.io", "nginx", false)]
#[case("docker.io", "nginx", true)]
#[case("docker.io", "bitnami/redis", true)]
#[case("docker.io", "index.docker.io/bash", true)]
#[case("docker.io", "localhost/a", false)]
#[case("https://docker.io/v1/", "nginx", true)]
#[case("docker.io/library", "nginx", true)]
#[case("docker.io/library/nginx", "docker.io/nginx:1", true)]
#[case("docker.io/nginx", "nginx", false)]
#[case("docker.io/bitnami", "bitnami/redis", true)]
#[case("docker.io/bitnami", "nginx", false)]
#[case("registry-1.docker.io", "nginx", false)]
#[case("hub.docker.com", "nginx", false)]
// Addresses. Without a port the kubelet parses the brackets as a character class.
#[case("10.0.0.1:5000", "10.0.0.1:5000/a", true)]
#[case("10.0.0.*", "10.0.0.7/a", true)]
#[case("[::1]:5000", "[::1]:5000/a", true)]
#[case("[::1]:5000", "[::2]:5000/a", false)]
#[case("[::1]:5000", "[::1]/a", false)]
#[case("[::1]", "[::1]/a", false)]
#[case("*", "[::1]/a", true)]
#[case("my_registry.corp", "my_registry.corp/a", true)]
fn covers(#[case] key: &str, #[case] image: &str, #[case] expected: bool) {
    let image = Reference::parse(image).expect("an image");
    assert_eq!(keyring(key).covers(&image), expected);
}

#[rstest]
fn a_key_that_is_no_address_covers_nothing(
    #[values(
        "",
        "https://",
        "/",
        "/v1/",
        "a b.com",
        "a.com:http",
        "a:1:2",
        "[::1",
        "[zz]:1",
        "reg[0-9].com",
        "%zz.com",
        "ä.com"
    )]
    key: &str,
    #[values("nginx", "a.com/a", "reg1.com/a", "[::1]:1/a")] image: &str,
) {
    let keyring = keyring(key);
    assert!(keyring.pattern().is_none());
    assert!(!keyring.covers(&Reference::parse(image).expect("an image")));
}

#[rstest]
#[case(r#"{"auths":{}}"#, &[])]
#[case(r#"{"auths":{"a.com":{}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":null}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{"auth":null,"password":null}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{},"https://a.com/v1/":{}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{},"b.com":{}}}"#, &["a.com", "b.com"])]
#[case(r#"{"Auths":{"a.com":{}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{}},"AUTHS":{"b.com":{}}}"#, &["a.com", "b.com"])]
#[case(r#"{"auths":{"a.com":{}},"AUTHS":null}"#, &["a.com"])]
#[case(
    r#"{"credsStore":"x","auths":{"a.com":{"identitytoken":"t","x":[1]}}}"#,
    &["a.com"]
)]
// user:password, with and without padding, with a line break, with an empty password.
#[case(r#"{"auths":{"a.com":{"auth":"dXNlcjpwYXNzd29yZA=="}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{"auth":"dXNlcjpwYXNzd29yZA"}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{"auth":"dXNlcjpw\nYXNzd29yZA==\n"}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{"auth":"dXNlcjo="}}}"#, &["a.com"])]
// Trailing bits after the last byte.
#[case(r#"{"auths":{"a.com":{"auth":"dXNlcjp="}}}"#, &["a.com"])]
#[case(r#"{"auths":{"a.com":{"auth":""}}}"#, &["a.com"])]
#[case(" {\"auths\":{\"a.com\":{}}}\n", &["a.com"])]
fn read(#[case] document: &str, #[case] registries: &[&str]) {
    let keyring = Keyring::parse(document.as_bytes()).expect("a docker config");
    assert_eq!(keyring.pattern().is_none(), registries.is_empty());
    for registry in ["a.com", "b.com"] {
        let image = format!("{registry}/x");
        let image = Reference::parse(&image).expect("an image");
        assert_eq!(
            keyring.covers(&image),
            registries.contains(&registry),
            "{registry}"
        );
    }
}

#[rstest]
#[case("", KeyringError::NotJson { line: 1, column: 0 })]
#[case("hunter2-do-not-print", KeyringError::NotJson { line: 1, column: 1 })]
#[case(r#"{"auths":{}} "hunter2-do-not-print""#, KeyringError::NotJson { line: 1, column: 14 })]
#[case("{\"auths\":{\n\"hunter2-do-not-print\":}}", KeyringError::NotJson { line: 2, column: 24 })]
#[case("null", KeyringError::NotAnObject)]
#[case("[]", KeyringError::NotAnObject)]
#[case(r#""hunter2-do-not-print""#, KeyringError::NotAnObject)]
#[case("{}", KeyringError::NoAuths)]
#[case(r#"{"auths":null}"#, KeyringError::NoAuths)]
#[case(
    r#"{"a.com":{"password":"hunter2-do-not-print"}}"#,
    KeyringError::NoAuths
)]
#[case(r#"{"auths":"hunter2-do-not-print"}"#, KeyringError::AuthsNotAnObject)]
#[case(
    r#"{"auths":["hunter2-do-not-print"]}"#,
    KeyringError::AuthsNotAnObject
)]
#[case(
    r#"{"auths":{"a.com":"hunter2-do-not-print"}}"#,
    KeyringError::EntryNotAnObject
)]
#[case(r#"{"auths":{"a.com":{"password":["hunter2-do-not-print"]}}}"#, KeyringError::FieldNotText { field: "password" })]
#[case(r#"{"auths":{"a.com":{"username":1}}}"#, KeyringError::FieldNotText { field: "username" })]
#[case(r#"{"auths":{"a.com":{"Email":false}}}"#, KeyringError::FieldNotText { field: "email" })]
#[case(r#"{"auths":{"a.com":{"auth":{"hunter2-do-not-print":1}}}}"#, KeyringError::FieldNotText { field: "auth" })]
#[case(
    r#"{"auths":{"a.com":{"auth":"hunter2-do-not-print"}}}"#,
    KeyringError::AuthNotDecodable
)]
// `user` only.
#[case(
    r#"{"auths":{"a.com":{"auth":"dXNlcg=="}}}"#,
    KeyringError::AuthNotDecodable
)]
#[case(
    r#"{"auths":{"a.com":{"AUTH":"dXNlcg=="}}}"#,
    KeyringError::AuthNotDecodable
)]
#[case(
    r#"{"auths":{"a.com":{"auth":"dXNlcjpwYXNzd29yZA== "}}}"#,
    KeyringError::AuthNotDecodable
)]
fn refused(#[case] document: &str, #[case] expected: KeyringError) {
    let error = Keyring::parse(document.as_bytes()).expect_err("no docker config");
    assert_eq!(error, expected);
    let told = format!("{error} {error:?}");
    assert!(
        !told.contains("hunter2") && !told.contains("a.com"),
        "{told}"
    );
}

#[test]
fn text_that_is_not_unicode_is_refused() {
    let error = Keyring::parse(b"{\"auths\":{\"\xff\":{}}}").expect_err("no docker config");
    assert!(matches!(error, KeyringError::NotJson { .. }));
}

#[rstest]
#[case::plain("registry.example.com")]
#[case::in_the_key("user:hunter2-do-not-print@registry.example.com")]
#[case::in_a_second_scheme("HTTPS://user:hunter2-do-not-print@registry.example.com")]
fn no_credential_is_kept(#[case] key: &str) {
    assert!(!format!("{:?}", keyring(key)).contains("hunter2"));
}

#[test]
fn keyrings_are_equal_if_they_cover_the_same_registries() {
    let one = Keyring::parse(br#"{"auths":{"b.com":{},"https://a.com/v2/":{"auth":"dTpw"}}}"#);
    let other = Keyring::parse(br#"{"auths":{"a.com":{},"b.com":{"password":"other"}}}"#);
    assert_eq!(one, other);
    assert_eq!(
        Keyring::default(),
        Keyring::parse(br#"{"auths":{}}"#).expect("a docker config")
    );
}
