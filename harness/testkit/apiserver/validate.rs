//! What the API server rejects about the objects that the product writes, and what it fills in.
//!
//! Only rules that a caller can run into; everything else passes. The fidelity test compares them with a real API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::kinds::TRUST_BUNDLES;
use super::request::Target;
use super::status::{Complaint, Refusal};

/// Whether a body can be an object of that kind at all: what the decoder would say.
pub(super) fn shape(target: &Target, body: &Value) -> Result<(), Refusal> {
    let (kind, api_version) = (target.kind, target.kind.api_version());
    let metadata = &body["metadata"];
    let own = [("name", &target.name), ("namespace", &target.namespace)];
    let other = own.into_iter().find_map(|(field, own)| {
        let sent = metadata[field].as_str().filter(|sent| sent != own)?;
        Some(format!(
            "the {field} of the object ({sent}) does not match the {field} on the URL ({own})"
        ))
    });
    let complaint = if !body.is_object() {
        "the body is no object".to_owned()
    } else if body["apiVersion"] != api_version || body["kind"] != kind.name {
        format!(
            "the API version in the data ({}) does not match the expected API version ({api_version})",
            body["apiVersion"].as_str().unwrap_or_default()
        )
    } else if metadata.get("name").is_none() {
        let name = &target.name;
        format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    } else if let Some(other) = other {
        other
    } else {
        return Ok(());
    };
    Err(Refusal::bad_request(complaint))
}

/// Whether the values are of the types that the schema has; an applied configuration that fails here is rejected
/// before anything is merged.
pub(super) fn types(target: &Target, body: &Value) -> Result<(), Refusal> {
    let resource = target.kind.resource;
    let untyped = |field: &str| {
        let Target {
            kind,
            namespace,
            name,
            ..
        } = target;
        let (version, kind) = (kind.api_version(), kind.name);
        let object = format!("({namespace}/{name}; {version}, Kind={kind})");
        let message =
            format!("failed to create typed patch object {object}: {field}: expected string");
        Err(Refusal::new(500, "", message))
    };
    let data = ("data", &body["data"]);
    let maps = ["labels", "annotations"].map(|field| (field, &body["metadata"][field]));
    let has_data = matches!(resource, "configmaps" | "secrets");
    for (field, map) in maps
        .into_iter()
        .chain([data].into_iter().filter(|_| has_data))
    {
        let Some(map) = map.as_object() else {
            if map.is_null() {
                continue;
            }
            return untyped(field);
        };
        if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
            return untyped(&format!("{field}.{key}"));
        }
    }
    let values = data.1.as_object().into_iter().flat_map(Map::values);
    let mut texts = values
        .filter_map(Value::as_str)
        .filter(|_| resource == "secrets");
    match texts.find_map(|text| BASE64.decode(text).err()) {
        Some(error) => {
            let message =
                format!("unable to convert unstructured object to /v1, Kind=Secret: {error}");
            Err(Refusal::new(500, "", message))
        }
        None => Ok(()),
    }
}

/// Keeps what the request may write: the status or everything else, where the status is a subresource.
pub(super) fn scope(target: &Target, content: &mut Value) {
    if let Some(fields) = content.as_object_mut().filter(|_| target.kind.status) {
        fields.retain(|field, _| match field.as_str() {
            "apiVersion" | "kind" => true,
            field => (field == "status") == target.status,
        });
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
    {
        spec.retain(|field, value| field != "paused" || *value != json!(false));
    }
}

/// Whether an object may be stored in the place of another one.
pub(super) fn object(target: &Target, before: &Value, content: &Value) -> Result<(), Refusal> {
    let complaints = match target.kind.resource {
        "secrets" => secret(before, content),
        TRUST_BUNDLES => bundle(&target.name, before, content),
        "deployments" if changed(before, content, "/spec/selector") => {
            vec![invalid("spec.selector", "field is immutable")]
        }
        _ => Vec::new(),
    };
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(target.kind, &target.name, &complaints))
}

fn secret(before: &Value, content: &Value) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    if changed(before, content, "/type") {
        let why = format!("{}: field is immutable", content["type"]);
        complaints.push(invalid("type", &why));
    }
    if content["type"] == "kubernetes.io/dockerconfigjson" {
        let field = "data[.dockerconfigjson]";
        match content["data"][".dockerconfigjson"].as_str() {
            None => complaints.push((
                field.to_owned(),
                "FieldValueRequired",
                "Required value".to_owned(),
            )),
            Some(encoded) => {
                let bytes = BASE64.decode(encoded).unwrap_or_default();
                if serde_json::from_slice::<Map<_, Value>>(&bytes).is_err() {
                    complaints.push(invalid(
                        field,
                        "\"<secret contents redacted>\": not a JSON object",
                    ));
                }
            }
        }
    }
    complaints
}

fn bundle(name: &str, before: &Value, content: &Value) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let signer = content["spec"]["signerName"].as_str();
    if let Some(prefix) = signer.map(|signer| signer.replace('/', ":") + ":")
        && !name.starts_with(&prefix)
    {
        let why = format!("{name:?}: must be named with prefix {prefix}");
        complaints.push(invalid("metadata.name", &why));
    }
    if !before.is_null() && before["spec"]["signerName"].as_str() != signer {
        complaints.push(invalid("spec.signerName", "field is immutable"));
    }
    let pem = content["spec"]["trustBundle"].as_str().unwrap_or_default();
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        let why = "\"<value omitted>\": at least one trust anchor must be provided";
        complaints.push(invalid("spec.trustBundle", why));
    }
    complaints
}

fn invalid(field: &str, why: &str) -> Complaint {
    (
        field.to_owned(),
        "FieldValueInvalid",
        format!("Invalid value: {why}"),
    )
}

fn changed(before: &Value, content: &Value, pointer: &str) -> bool {
    let before = before.pointer(pointer);
    before.is_some_and(|before| Some(before) != content.pointer(pointer))
}
