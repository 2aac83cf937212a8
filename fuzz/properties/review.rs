//! Any request to the webhook is parsed or rejected. For a Pod in the encoding of an API server, the patch fits, and a
//! second run changes nothing.

use std::sync::LazyLock;

use api::config::Document;
use policy::admission::review::{self, Subject};
use policy::admission::{
    Configuration, Context, PullSecret, Settings, TrustBundlePresence, decide,
};
use serde_json::Value;

const DOCUMENT: &str = r#"{
  "overrides": {"docker.io": "a.io/hub", "a.io": "a.io/cache", "b.io": "c.io:5000/p"},
  "clusterTrustBundle": {"name": "ctb", "certWritePath": "ca.pem", "volumeMountPath": "/etc/ssl/certs", "volumeName": "certs"},
  "availableFeatures": [
    "rt-cfg.kyma-project.io/alter-img-registry", "rt-cfg.kyma-project.io/add-img-pull-secret",
    "rt-cfg.kyma-project.io/add-cluster-trust-bundle", "rt-cfg.kyma-project.io/set-fips-mode",
    "rt-cfg.kyma-project.io/set-landscape"
  ],
  "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]}
}"#;

static CONFIGURATION: LazyLock<Configuration> = LazyLock::new(|| {
    let settings = Settings {
        landscape: Some("eu-1".to_owned()),
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let document = Document::parse(DOCUMENT).ok();
    let configuration = document.and_then(|it| Configuration::new(&it, &settings).ok());
    configuration.unwrap_or_else(|| unreachable!("the document above is good"))
});

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let Some(patch) = patch(data) else { return };
    let Ok(mut body) = serde_json::from_slice::<Value>(data) else {
        // The nesting exceeds the limit of this parser, or a number is not representable.
        return;
    };
    let object = &mut body["request"]["object"];
    if !is_encoded(object) {
        return;
    }
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap_or_else(|error| {
        unreachable!("the patch is none: {error}");
    });
    let fits = json_patch::patch(object, &patch);
    assert!(fits.is_ok(), "{patch}: {fits:?}");
    assert_eq!(self::patch(body.to_string().as_bytes()), None, "{body}");
}

/// Returns whether an API server could have written the Pod. An API server decodes the input of users and encodes it again:
/// `metadata` and `spec` always exist, and objects and lists of objects have no other type.
fn is_encoded(pod: &Value) -> bool {
    pod["metadata"].is_object() && pod["spec"].is_object() && has_shape(pod)
}

fn has_shape(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(key, member)| match key.as_str() {
            "metadata" | "spec" | "annotations" | "projected" | "clusterTrustBundle" => {
                (member.is_null() || member.is_object()) && has_shape(member)
            }
            // The field is a text in a container, and an object in a volume.
            "image" => !member.is_array(),
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "env"
            | "volumeMounts"
            | "volumes"
            | "imagePullSecrets"
            | "sources" => match member {
                Value::Null => true,
                Value::Array(items) => items.iter().all(|it| it.is_object() && has_shape(it)),
                _ => false,
            },
            _ => true,
        }),
        _ => true,
    }
}

/// Returns the patch of the webhook, if the body is a review of a Pod that the webhook would change.
fn patch(body: &[u8]) -> Option<Vec<u8>> {
    let review = review::parse(body).ok()?;
    assert!(!review.uid.is_empty());
    let Subject::Pod(request) = &review.subject else {
        return None;
    };
    let context = Context {
        configuration: &CONFIGURATION,
        namespace: None,
        pull_secret: &PullSecret::Unknown,
        trust_bundle: TrustBundlePresence::Present,
        fallback_policy: false,
    };
    let decision = decide(request, &context);
    assert!(!decision.findings.is_empty());
    decision.patch.json().map(<[u8]>::to_vec)
}
