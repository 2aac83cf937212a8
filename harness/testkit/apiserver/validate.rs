//! What the API server refuses about the objects that we write, and what it fills in.
//!
//! Invariant: only rules that a caller of ours can run into; everything else passes. The fidelity test holds them
//! against a real API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::kinds::TRUST_BUNDLES;
use super::request::Target;
use super::status::Refusal;

/// Whether a body can be an object of that kind at all: what the decoder would say.
pub(super) fn shape(target: &Target, body: &Value) -> Result<(), Refusal> {
    let kind = target.kind;
    if !body.is_object() {
        return Err(Refusal::bad_request("the body is no object"));
    }
    let expected = (kind.api_version(), kind.name);
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    if (text("apiVersion"), text("kind").as_str()) != (expected.0.clone(), expected.1) {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            text("apiVersion"),
            expected.0
        )));
    }
    if body.pointer("/metadata/name").is_none() {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    for (field, own) in [("name", &target.name), ("namespace", &target.namespace)] {
        let sent = body.pointer(&format!("/metadata/{field}"));
        if sent.and_then(Value::as_str).is_some_and(|sent| sent != own) {
            return Err(Refusal::bad_request(format!(
                "the {field} of the object ({}) does not match the {field} on the URL ({own})",
                sent.and_then(Value::as_str).unwrap_or_default()
            )));
        }
    }
    Ok(())
}

/// Whether the values are of the types that the schema has; an applied configuration that fails here is refused
/// before anything is merged.
pub(super) fn types(target: &Target, body: &Value) -> Result<(), Refusal> {
    let maps_of_text = match target.kind.resource {
        "configmaps" | "secrets" => &["/data", "/metadata/labels", "/metadata/annotations"][..],
        _ => &["/metadata/labels", "/metadata/annotations"],
    };
    for pointer in maps_of_text {
        let Some(map) = body.pointer(pointer) else {
            continue;
        };
        let wrong = match map {
            Value::Object(map) => map.iter().find(|(_, value)| !value.is_string()),
            Value::Null => None,
            _ => return Err(untyped(target, &pointer.replace('/', "."))),
        };
        if let Some((key, _)) = wrong {
            return Err(untyped(
                target,
                &format!("{}.{key}", pointer.replace('/', ".")),
            ));
        }
    }
    let encoded = body["data"].as_object().into_iter().flatten();
    for (_, value) in encoded.filter(|_| target.kind.resource == "secrets") {
        let decoded = value.as_str().map(|text| BASE64.decode(text));
        if let Some(Err(error)) = decoded {
            return Err(Refusal::new(
                500,
                "",
                format!("unable to convert unstructured object to /v1, Kind=Secret: {error}"),
            ));
        }
    }
    Ok(())
}

fn untyped(target: &Target, field: &str) -> Refusal {
    let Target {
        kind,
        namespace,
        name,
        ..
    } = target;
    Refusal::new(
        500,
        "",
        format!(
            "failed to create typed patch object ({namespace}/{name}; {}, Kind={}): {field}: expected string",
            kind.api_version(),
            kind.name
        ),
    )
}

/// Keeps what the request may write: the status or everything else, where the status is a subresource.
pub(super) fn scope(target: &Target, content: &mut Value) {
    let Some(fields) = content.as_object_mut().filter(|_| target.kind.status) else {
        return;
    };
    if target.status {
        fields.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "status"));
    } else {
        fields.remove("status");
    }
}

/// What the API server writes into an object that does not say it.
pub(super) fn defaults(target: &Target, content: &mut Value) {
    content["apiVersion"] = json!(target.kind.api_version());
    content["kind"] = json!(target.kind.name);
    match target.kind.resource {
        "secrets" if content.get("type").is_none() => content["type"] = json!("Opaque"),
        "namespaces" => {
            content["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(target.name);
        }
        _ => {}
    }
}

/// What controllers and strategies of the API server add, which has no owner.
pub(super) fn settle(target: &Target, content: &mut Value) {
    if target.kind.resource == "namespaces" {
        content["spec"] = json!({"finalizers": ["kubernetes"]});
        if content["status"].is_null() {
            content["status"] = json!({"phase": "Active"});
        }
    }
    // The API server omits `paused: false`, and leaves its owner.
    if target.kind.resource == "deployments"
        && let Some(spec) = content["spec"].as_object_mut()
        && spec.get("paused") == Some(&json!(false))
    {
        spec.remove("paused");
    }
}

/// Whether an object may be stored in the place of another one.
pub(super) fn object(target: &Target, before: &Value, content: &Value) -> Result<(), Refusal> {
    let mut complaints = Vec::new();
    let mut complain = |field: &str, reason: &'static str, message: String| {
        complaints.push((field.to_owned(), reason, message));
    };
    match target.kind.resource {
        "secrets" => secret(before, content, &mut complain),
        TRUST_BUNDLES => bundle(&target.name, (before, content), &mut complain),
        "deployments" if changed(before, content, "/spec/selector") => {
            let message = "Invalid value: field is immutable".to_owned();
            complain("spec.selector", "FieldValueInvalid", message);
        }
        _ => {}
    }
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(target.kind, &target.name, &complaints))
}

fn secret(before: &Value, content: &Value, complain: &mut impl FnMut(&str, &'static str, String)) {
    if changed(before, content, "/type") {
        let message = format!("Invalid value: {}: field is immutable", content["type"]);
        complain("type", "FieldValueInvalid", message);
    }
    if content["type"] != "kubernetes.io/dockerconfigjson" {
        return;
    }
    let Some(encoded) = content["data"][DOCKER_CONFIG].as_str() else {
        complain(
            "data[.dockerconfigjson]",
            "FieldValueRequired",
            "Required value".to_owned(),
        );
        return;
    };
    let parses = BASE64
        .decode(encoded)
        .is_ok_and(|bytes| serde_json::from_slice::<serde_json::Map<_, Value>>(&bytes).is_ok());
    if !parses {
        let message = "Invalid value: \"<secret contents redacted>\": not a JSON object".to_owned();
        complain("data[.dockerconfigjson]", "FieldValueInvalid", message);
    }
}

fn bundle(
    name: &str,
    (before, content): (&Value, &Value),
    complain: &mut impl FnMut(&str, &'static str, String),
) {
    let signer = content["spec"]["signerName"].as_str();
    if let Some(prefix) = signer.map(|signer| signer.replace('/', ":") + ":")
        && !name.starts_with(&prefix)
    {
        let message = format!("Invalid value: {name:?}: must be named with prefix {prefix}");
        complain("metadata.name", "FieldValueInvalid", message);
    }
    if !before.is_null() && before["spec"]["signerName"].as_str() != signer {
        let message = "Invalid value: field is immutable".to_owned();
        complain("spec.signerName", "FieldValueInvalid", message);
    }
    let pem = content["spec"]["trustBundle"].as_str().unwrap_or_default();
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        let message =
            "Invalid value: \"<value omitted>\": at least one trust anchor must be provided";
        complain("spec.trustBundle", "FieldValueInvalid", message.to_owned());
    }
}

fn changed(before: &Value, content: &Value, pointer: &str) -> bool {
    before
        .pointer(pointer)
        .is_some_and(|before| Some(before) != content.pointer(pointer))
}

const DOCKER_CONFIG: &str = ".dockerconfigjson";
