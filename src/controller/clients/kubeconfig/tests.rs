use std::error::Error as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::pki::Authority;
use testkit::pki::rcgen::{IsCa, KeyPair};

use super::*;

const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0LXRva2Vu.c2lnbmF0dXJl";

/// A CA, a leaf that the CA issued, and a self-signed certificate that is not a CA.
struct Material {
    authority: String,
    leaf: String,
    key: String,
    alone: String,
}

static MATERIAL: LazyLock<Material> = LazyLock::new(|| {
    let authority = Authority::new("authority").unwrap();
    let leaf = authority.leaf("leaf").unwrap();
    let alone = Authority::with("leaf", |params| params.is_ca = IsCa::NoCa).unwrap();
    Material {
        authority: authority.pem().to_owned(),
        key: leaf.key_pem(),
        leaf: leaf.pem,
        alone: alone.pem().to_owned(),
    }
});

fn encoded(text: impl AsRef<[u8]>) -> String {
    STANDARD.encode(text)
}

/// Returns a valid kubeconfig with a token. The test cases change it.
fn document() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "preferences": {},
        "contexts": [
            {"name": "there", "context": {"cluster": "unknown", "user": "unknown"}},
            {"name": "here", "context": {"cluster": "shoot", "user": "admin", "namespace": "default"}},
        ],
        "clusters": [{"name": "shoot", "cluster": {
            "server": "https://api.example:6443",
            "certificate-authority-data": encoded(&MATERIAL.authority),
        }}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
    })
}

fn with_certificate(document: &mut Value) {
    document["users"][0]["user"] = json!({
        "client-certificate-data": encoded(&MATERIAL.leaf),
        "client-key-data": encoded(&MATERIAL.key),
    });
}

fn bent(bend: fn(&mut Value)) -> Result<Access, KubeconfigError> {
    let mut document = document();
    bend(&mut document);
    parse(document.to_string().as_bytes())
}

fn cluster(document: &mut Value, key: &str, value: Value) {
    document["clusters"][0]["cluster"][key] = value;
}

fn user(document: &mut Value, key: &str, value: Value) {
    document["users"][0]["user"][key] = value;
}

fn add(document: &mut Value, section: &str, entry: Value) {
    document[section].as_array_mut().unwrap().push(entry);
}

fn with_server(url: &str) -> Result<Server, KubeconfigError> {
    let mut document = document();
    cluster(&mut document, "server", json!(url));
    parse(document.to_string().as_bytes()).map(|it| it.server)
}

fn name(text: &str) -> ServerName<'static> {
    ServerName::try_from(text.to_owned()).unwrap()
}

#[test]
fn a_token_comes_through() {
    let access = bent(|_| ()).unwrap();
    assert_eq!(access.server.host(), "api.example");
    assert_eq!(access.server.port(), 6443);
    assert_eq!(access.server.prefix(), "");
    assert_eq!(access.server_name, name("api.example"));
    assert_eq!(access.authority.len(), 1);
    assert!(matches!(access.credentials, Credentials::Token(it) if *it == TOKEN));
}

#[test]
fn a_client_certificate_comes_through() {
    let access = bent(with_certificate).unwrap();
    let Credentials::Certificate { chain, key } = access.credentials else {
        panic!("no certificate");
    };
    assert_eq!(chain.len(), 1);
    assert_eq!(
        key.secret_der(),
        KeyPair::from_pem(&MATERIAL.key).unwrap().serialized_der()
    );
}

#[rstest]
#[case::no_kind_or_version(|it: &mut Value| { it.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "apiVersion"); })]
#[case::unknown_fields(|it: &mut Value| it["extensions"] = json!([{"name": "x", "extension": {"a": [1, {"b": null}]}}]))]
#[case::an_exec_in_a_user_that_is_not_current(|it: &mut Value| add(it, "users", json!({"name": "other", "user": {"exec": {"command": "sh"}}})))]
#[case::two_of_a_name_that_is_not_current(|it: &mut Value| { add(it, "users", json!({"name": "other"})); add(it, "users", json!({"name": "other"})); })]
#[case::verification_said_not_to_be_skipped(|it: &mut Value| cluster(it, "insecure-skip-tls-verify", json!(false)))]
#[case::empty_strings_are_absent(|it: &mut Value| {
    for key in ["proxy-url", "certificate-authority", "tls-server-name"] { cluster(it, key, json!("")); }
    for key in ["tokenFile", "client-key", "client-certificate-data", "username", "as"] { user(it, key, json!("")); }
})]
#[case::nulls_are_absent(|it: &mut Value| {
    for key in ["exec", "auth-provider", "tokenFile", "as-groups"] { user(it, key, Value::Null); }
})]
#[case::a_token_from_a_block_scalar(|it: &mut Value| user(it, "token", json!(format!("{TOKEN}\n"))))]
#[case::base64_in_lines(|it: &mut Value| {
    let data = encoded(&MATERIAL.authority);
    let (first, second) = data.split_at(64);
    cluster(it, "certificate-authority-data", json!(format!("{first}\r\n{second}\n")));
})]
#[case::a_certificate_that_vouches_for_itself(|it: &mut Value| cluster(it, "certificate-authority-data", json!(encoded(&MATERIAL.alone))))]
fn accepted(#[case] bend: fn(&mut Value)) {
    bent(bend).unwrap();
}

#[rstest]
#[case::another_kind(|it: &mut Value| it["kind"] = json!("Secret"), KubeconfigError::Foreign)]
#[case::another_version(|it: &mut Value| it["apiVersion"] = json!("v2"), KubeconfigError::Foreign)]
#[case::no_current_context(|it: &mut Value| it["current-context"] = json!(""), KubeconfigError::Missing("current-context"))]
#[case::an_unknown_context(|it: &mut Value| it["current-context"] = json!("x"), KubeconfigError::Missing("current-context"))]
#[case::no_contexts(|it: &mut Value| it["contexts"] = Value::Null, KubeconfigError::Missing("current-context"))]
#[case::an_empty_context(|it: &mut Value| it["contexts"][1]["context"] = Value::Null, KubeconfigError::Missing("current-context"))]
#[case::an_unknown_cluster(|it: &mut Value| it["current-context"] = json!("there"), KubeconfigError::Missing("cluster of the current context"))]
#[case::an_unknown_user(|it: &mut Value| it["users"] = json!([]), KubeconfigError::Missing("user of the current context"))]
#[case::a_context_twice(|it: &mut Value| it["contexts"][0]["name"] = json!("here"), KubeconfigError::Duplicate("current-context"))]
#[case::a_cluster_twice(|it: &mut Value| add(it, "clusters", json!({"name": "shoot"})), KubeconfigError::Duplicate("cluster of the current context"))]
#[case::a_user_twice(|it: &mut Value| add(it, "users", json!({"name": "admin"})), KubeconfigError::Duplicate("user of the current context"))]
#[case::exec(|it: &mut Value| user(it, "exec", json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"})), KubeconfigError::Refused("exec"))]
#[case::an_empty_exec(|it: &mut Value| user(it, "exec", json!({})), KubeconfigError::Refused("exec"))]
#[case::auth_provider(|it: &mut Value| user(it, "auth-provider", json!({"name": "oidc"})), KubeconfigError::Refused("auth-provider"))]
#[case::token_file(|it: &mut Value| user(it, "tokenFile", json!("/var/run/secrets/token")), KubeconfigError::Refused("a file path"))]
#[case::certificate_file(|it: &mut Value| user(it, "client-certificate", json!("/a")), KubeconfigError::Refused("a file path"))]
#[case::key_file(|it: &mut Value| user(it, "client-key", json!("/a")), KubeconfigError::Refused("a file path"))]
#[case::authority_file(|it: &mut Value| cluster(it, "certificate-authority", json!("/a")), KubeconfigError::Refused("a file path"))]
#[case::proxy(|it: &mut Value| cluster(it, "proxy-url", json!("http://10.0.0.1:3128")), KubeconfigError::Refused("proxy-url"))]
#[case::insecure(|it: &mut Value| cluster(it, "insecure-skip-tls-verify", json!(true)), KubeconfigError::Refused("insecure-skip-tls-verify"))]
#[case::user_name(|it: &mut Value| user(it, "username", json!("admin")), KubeconfigError::Refused("username or password"))]
#[case::password(|it: &mut Value| user(it, "password", json!("x")), KubeconfigError::Refused("username or password"))]
#[case::impersonated_user(|it: &mut Value| user(it, "as", json!("root")), KubeconfigError::Refused("impersonation"))]
#[case::impersonated_uid(|it: &mut Value| user(it, "as-uid", json!("0")), KubeconfigError::Refused("impersonation"))]
#[case::impersonated_groups(|it: &mut Value| user(it, "as-groups", json!(["system:masters"])), KubeconfigError::Refused("impersonation"))]
#[case::impersonated_extra(|it: &mut Value| user(it, "as-user-extra", json!({"a": ["b"]})), KubeconfigError::Refused("impersonation"))]
#[case::no_server(|it: &mut Value| cluster(it, "server", Value::Null), KubeconfigError::Server(ServerUrlError::Absent))]
#[case::a_name_that_is_none(|it: &mut Value| cluster(it, "tls-server-name", json!("a b")), KubeconfigError::ServerName)]
#[case::no_authority(|it: &mut Value| cluster(it, "certificate-authority-data", Value::Null), KubeconfigError::NoAuthority)]
#[case::authority_not_base64(|it: &mut Value| cluster(it, "certificate-authority-data", json!("%%%")), KubeconfigError::Authority)]
#[case::authority_not_pem(|it: &mut Value| cluster(it, "certificate-authority-data", json!(encoded("hello"))), KubeconfigError::Authority)]
#[case::authority_not_a_certificate(|it: &mut Value| cluster(it, "certificate-authority-data", json!(encoded("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))), KubeconfigError::Authority)]
#[case::authority_a_key(|it: &mut Value| cluster(it, "certificate-authority-data", json!(encoded(&MATERIAL.key))), KubeconfigError::Authority)]
#[case::authority_a_leaf(|it: &mut Value| cluster(it, "certificate-authority-data", json!(encoded(&MATERIAL.leaf))), KubeconfigError::LeafAuthority)]
#[case::authority_of_too_many(|it: &mut Value| cluster(it, "certificate-authority-data", json!(encoded(MATERIAL.authority.repeat(33)))), KubeconfigError::Authority)]
#[case::no_credentials(|it: &mut Value| it["users"][0]["user"] = json!({}), KubeconfigError::NoCredentials)]
#[case::an_empty_token(|it: &mut Value| user(it, "token", json!("")), KubeconfigError::NoCredentials)]
#[case::a_blank_token(|it: &mut Value| user(it, "token", json!("  ")), KubeconfigError::Token)]
#[case::a_token_that_adds_a_header(|it: &mut Value| user(it, "token", json!("a\r\nX-Remote-User: root")), KubeconfigError::Token)]
#[case::a_token_beyond_ascii(|it: &mut Value| user(it, "token", json!("tökén")), KubeconfigError::Token)]
#[case::a_token_too_long(|it: &mut Value| user(it, "token", json!("a".repeat(20_000))), KubeconfigError::Token)]
#[case::token_and_certificate(|it: &mut Value| { with_certificate(it); user(it, "token", json!("a")); }, KubeconfigError::TwoCredentials)]
#[case::certificate_without_key(|it: &mut Value| { with_certificate(it); user(it, "client-key-data", Value::Null); }, KubeconfigError::ClientKey)]
#[case::key_without_certificate(|it: &mut Value| { with_certificate(it); user(it, "client-certificate-data", Value::Null); }, KubeconfigError::ClientCertificate)]
#[case::certificate_that_is_a_key(|it: &mut Value| { with_certificate(it); user(it, "client-certificate-data", json!(encoded(&MATERIAL.key))); }, KubeconfigError::ClientCertificate)]
#[case::key_that_is_a_certificate(|it: &mut Value| { with_certificate(it); user(it, "client-key-data", json!(encoded(&MATERIAL.leaf))); }, KubeconfigError::ClientKey)]
#[case::an_encrypted_key(|it: &mut Value| { with_certificate(it); user(it, "client-key-data", json!(encoded(MATERIAL.key.replace("PRIVATE", "ENCRYPTED PRIVATE")))); }, KubeconfigError::ClientKey)]
fn refused(#[case] bend: fn(&mut Value), #[case] expected: KubeconfigError) {
    assert_eq!(bent(bend).unwrap_err(), expected);
}

#[rstest]
#[case::default_port("https://api.example", "api.example", "")]
#[case::root_path("https://api.example/", "api.example", "")]
#[case::upper_case("HTTPS://API.example:443/", "api.example", "")]
#[case::prefix(
    "https://rancher.example/k8s/clusters/c-1/",
    "rancher.example",
    "/k8s/clusters/c-1"
)]
#[case::address("https://192.0.2.7:6443/a", "192.0.2.7:6443", "/a")]
#[case::address_6("https://[2001:DB8::7]:6443", "[2001:db8::7]:6443", "")]
fn servers_accepted(#[case] url: &str, #[case] shown: &str, #[case] prefix: &str) {
    let server = with_server(url).unwrap();
    assert_eq!(
        (server.to_string().as_str(), server.prefix()),
        (shown, prefix)
    );
}

#[rstest]
#[case::http("http://api.example", ServerUrlError::NotHttps)]
#[case::no_scheme("api.example:6443", ServerUrlError::NotHttps)]
#[case::file("file:///etc/passwd", ServerUrlError::NotHttps)]
#[case::blank_before(" https://api.example", ServerUrlError::NotHttps)]
#[case::no_host("https://", ServerUrlError::Host)]
#[case::only_a_port("https://:6443", ServerUrlError::Host)]
#[case::user_information("https://admin@api.example", ServerUrlError::Host)]
#[case::backslash("https://api.example\\@evil.example", ServerUrlError::Host)]
#[case::query_at_once("https://api.example?x", ServerUrlError::Host)]
#[case::line_break("https://api.example\r\nHost: x", ServerUrlError::Host)]
#[case::zone("https://[fe80::1%25eth0]", ServerUrlError::Host)]
#[case::bracket_open("https://[::1", ServerUrlError::Host)]
#[case::bracket_then_text("https://[::1]x", ServerUrlError::Host)]
#[case::bare_address_6("https://2001:db8::7", ServerUrlError::Host)]
#[case::address_as_one_number("https://2130706433", ServerUrlError::Host)]
#[case::port_zero("https://api.example:0", ServerUrlError::Port)]
#[case::port_too_large("https://api.example:65536", ServerUrlError::Port)]
#[case::port_signed("https://api.example:+443", ServerUrlError::Port)]
#[case::port_empty("https://api.example:", ServerUrlError::Port)]
#[case::port_and_password("https://admin:secret@api.example", ServerUrlError::Port)]
#[case::query("https://api.example/a?x=1", ServerUrlError::Path)]
#[case::fragment("https://api.example/a#x", ServerUrlError::Path)]
#[case::blank("https://api.example/a b", ServerUrlError::Path)]
fn servers_refused(#[case] url: &str, #[case] expected: ServerUrlError) {
    assert_eq!(
        with_server(url).unwrap_err(),
        KubeconfigError::Server(expected)
    );
}

#[test]
fn the_name_to_verify_can_differ_from_the_host() {
    let access = bent(|it| cluster(it, "tls-server-name", json!("kubernetes.default"))).unwrap();
    assert_eq!(access.server_name, name("kubernetes.default"));
    assert_eq!(access.server.host(), "api.example");
}

#[test]
fn a_leaf_beside_its_authority_is_no_anchor() {
    let access = bent(|it| {
        let both = format!("{}{}", MATERIAL.leaf, MATERIAL.authority);
        cluster(it, "certificate-authority-data", json!(encoded(both)));
    })
    .unwrap();
    let expected = bent(|_| ()).unwrap().authority;
    assert_eq!(access.authority, expected);
}

#[test]
fn yaml_is_read_as_json_is() {
    let text = format!(
        "# written by hand\napiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {{cluster: a, user: a}}\n\
         clusters:\n- name: a\n  cluster:\n    server: https://api.example\n    certificate-authority-data: >-\n      {}\n\
         users:\n- name: a\n  user:\n    token: |\n      {TOKEN}\n",
        encoded(&MATERIAL.authority)
    );
    let access = parse(text.as_bytes()).unwrap();
    assert!(matches!(access.credentials, Credentials::Token(it) if *it == TOKEN));
}

#[rstest]
#[case::not_utf_8_in_spirit("\u{0}\u{1}".to_owned())]
#[case::duplicate_key("kind: Config\nkind: Config\n".to_owned())]
#[case::two_documents("kind: Config\n---\nkind: Config\n".to_owned())]
#[case::anchor("kind: &a Config\n".to_owned())]
#[case::merge_key("a: {b: c}\n<<: {kind: Config}\n".to_owned())]
#[case::laughs(laughs())]
#[case::deep("[".repeat(100_000))]
#[case::deep_but_closed(format!("extensions: {}{}", "[".repeat(1_000), "]".repeat(1_000)))]
#[case::many_nodes(format!("extensions: [{}]", "1,".repeat(200_000)))]
fn unreadable(#[case] text: String) {
    let error = parse(text.as_bytes()).map(|_| ()).unwrap_err();
    assert!(
        matches!(error, KubeconfigError::Unreadable(1..)),
        "{error:?}"
    );
}

#[rstest]
#[case::empty("")]
#[case::a_scalar("kubeconfig")]
#[case::a_list("- a")]
#[case::wrong_type("clusters: {a: b}\n")]
#[case::wrong_type_in_an_entry("users: [{name: a, user: {exec: sh}}]\n")]
fn malformed(#[case] text: &str) {
    let error = parse(text.as_bytes()).map(|_| ()).unwrap_err();
    assert_eq!(error, KubeconfigError::Malformed);
}

/// Returns nine generations of nine aliases: 400 million nodes if expanded.
fn laughs() -> String {
    let generations = (1..10).map(|it| {
        let aliases = vec![format!("*a{}", it - 1); 9].join(",");
        format!("a{it}: &a{it} [{aliases}]")
    });
    let mut lines = vec!["a0: &a0 [x]".to_owned()];
    lines.extend(generations);
    lines.join("\n")
}

#[test]
fn too_large() {
    let mut text = document().to_string().into_bytes();
    text.resize(MAX_BYTES, b' ');
    parse(&text).unwrap();
    text.push(b' ');
    assert_eq!(parse(&text).unwrap_err(), KubeconfigError::TooLarge);
}

#[test]
fn errors_say_each_thing_once() {
    let error = KubeconfigError::Server(ServerUrlError::NotHttps);
    let inner = error.source().unwrap().to_string();
    assert_eq!(inner, "expected an https URL");
    assert!(!error.to_string().contains(&inner));
}

#[test]
fn what_is_shown_has_no_secret() {
    let shown = format!(
        "{:?}{:?}",
        bent(|_| ()).unwrap(),
        bent(with_certificate).unwrap()
    );
    assert!(shown.contains("api.example"));
    assert!(
        !shown.contains(TOKEN) && !shown.contains("PRIVATE"),
        "{shown}"
    );
}

/// Returns changes of the text: an index, the kind of change, and a byte.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 1..6)
}

fn mutated(mut text: Vec<u8>, edits: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    for (place, edit, byte) in edits {
        let place = place.index(text.len().max(1));
        match edit {
            0 => text.truncate(place),
            1 => text.insert(place, *byte),
            2 if place < text.len() => text[place] = *byte,
            _ if place < text.len() => drop(text.remove(place)),
            _ => text.push(*byte),
        }
    }
    text
}

proptest! {
    #[test]
    fn mutated_documents_never_panic_and_never_leak(certificate: bool, edits in edits()) {
        let mut document = document();
        if certificate {
            with_certificate(&mut document);
        }
        let text = mutated(serde_json::to_vec_pretty(&document).unwrap(), &edits);
        let (shown, cause) = match parse(&text) {
            Ok(access) => (format!("{access:?}"), String::new()),
            Err(error) => (
                format!("{error} {error:?}"),
                error.source().map(ToString::to_string).unwrap_or_default(),
            ),
        };
        // An output leaks a secret if it contains twelve consecutive characters of the secret.
        for shown in [shown, cause] {
            for secret in [TOKEN, &encoded(&MATERIAL.key)] {
                let leaked = secret.as_bytes().windows(12).any(|it| shown.contains(str::from_utf8(it).unwrap()));
                prop_assert!(!leaked, "{}", shown);
            }
        }
    }

    #[test]
    fn secrets_in_the_wrong_place_never_show(field in 0..8_usize) {
        let mut document = document();
        let secret = json!(format!("https://{TOKEN}@{TOKEN}"));
        match field {
            0 => document["kind"] = secret,
            1 => document["current-context"] = secret,
            2 => cluster(&mut document, "server", secret),
            3 => cluster(&mut document, "tls-server-name", secret),
            4 => cluster(&mut document, "certificate-authority-data", secret),
            5 => user(&mut document, "client-key-data", secret),
            6 => user(&mut document, "exec", secret),
            _ => document["clusters"] = secret,
        }
        let error = parse(document.to_string().as_bytes()).map(|_| ()).unwrap_err();
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        let leaked = format!("{error} {error:?} {cause}").contains(TOKEN);
        prop_assert!(!leaked);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(parse(&bytes).is_err());
    }
}
