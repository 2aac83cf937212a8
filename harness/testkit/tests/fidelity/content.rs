//! Pull Secrets and trust bundles, good and bad ones.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{Call, OURS};

const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/registry-credentials";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";

#[rustfmt::skip]
pub(super) fn secrets() -> Vec<Call> {
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry-credentials"},
            "type": "kubernetes.io/dockerconfigjson", "data": data,
        })
    };
    let encoded = |text: &str| json!({".dockerconfigjson": BASE64.encode(text)});
    let good = secret(encoded(r#"{"auths":{"r.example":{"auth":"eDp5"}}}"#));
    let mut opaque = secret(json!({"a": "eA=="}));
    opaque.as_object_mut().unwrap().remove("type");
    let mut other_type = good.clone();
    other_type["type"] = json!("Opaque");
    let apply = |what: &str, body: &Value| Call::apply(what, SECRET, OURS, body);
    let delete = |what: &str, body: &str| Call::new(what, "DELETE", SECRET).with(body);
    vec![
        apply("without the key", &secret(json!({}))),
        apply("no JSON in it", &secret(encoded("x"))),
        apply("a list in it", &secret(encoded("[]"))),
        apply("no base64", &secret(json!({".dockerconfigjson": "%"}))),
        apply("a pull Secret", &good),
        apply("a pull Secret again", &good),
        apply("another password", &secret(encoded(r#"{"auths":{}}"#))),
        apply("another type", &other_type),
        delete("deleted with another uid", r#"{"preconditions": {"uid": "x"}}"#),
        delete("deleted with another version", r#"{"preconditions": {"resourceVersion": "1"}}"#),
        delete("deleted with its uid", r#"{"preconditions": {"uid": "UID", "resourceVersion": "VERSION"}}"#),
        delete("deleted twice", ""),
        apply("type by default", &opaque),
    ]
}

#[rustfmt::skip]
pub(super) fn bundles() -> Vec<Call> {
    let path = format!("{BUNDLES}/landscape");
    let bundle = |pem: &str| {
        json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "landscape"}, "spec": {"trustBundle": pem},
        })
    };
    let [one, two] = AUTHORITIES.get_or_init(|| [authority(), authority()]);
    let mut signed = bundle(one);
    signed["spec"]["signerName"] = json!("example.com/signer");
    let apply = |what: &str, body: &Value| Call::apply(what, &path, OURS, body);
    // As the controller asks for one, whether its API is served or not; the other's name holds colons.
    let only = |name: &str| format!("{BUNDLES}?fieldSelector=metadata.name%3D{name}");
    let of_signer = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "landscape.test:bundle:1"},
        "spec": {"signerName": "landscape.test/bundle", "trustBundle": one},
    });
    let of_signer_path = format!("{BUNDLES}/landscape.test:bundle:1");
    vec![
        apply("no PEM", &bundle("x")),
        apply("nothing in it", &bundle("")),
        apply("a bundle", &bundle(one)),
        apply("a bundle again", &bundle(one)),
        apply("another bundle", &bundle(&format!("{one}{two}"))),
        apply("another signer", &signed),
        Call::new("read a bundle", "GET", &path),
        Call::new("list bundles", "GET", BUNDLES),
        Call::apply("a bundle of a signer", &of_signer_path, OURS, &of_signer),
        Call::new("ask for one", "GET", &only("landscape")),
        Call::new("ask for the signer's", "GET", &only("landscape.test%3Abundle%3A1")),
        Call::new("ask for one that is not there", "GET", &only("another")),
        Call::new("delete the signer's", "DELETE", &of_signer_path),
        Call::new("delete a bundle", "DELETE", &path),
    ]
}

/// The same for both servers.
static AUTHORITIES: OnceLock<[String; 2]> = OnceLock::new();

fn authority() -> String {
    let authority = testkit::pki::Authority::new("fidelity").unwrap();
    authority.pem().to_owned()
}
