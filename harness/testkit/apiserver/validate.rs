//! Validation and defaults of the API server for the objects that the product writes.
//!
//! Only rules that are relevant for a client of this crate are implemented. The fidelity test compares them with a real API
//! server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::kinds::{Handling, TRUST_BUNDLES};
use super::object::Key;
use super::request::Target;
use super::status::{Complaint, Refusal};

/// Checks that a body can be decoded as an object of the kind.
pub(super) fn shape(key: &Key, body: &Value) -> Result<(), Refusal> {
    let (kind, metadata) = (key.kind, &body["metadata"]);
    let own = [("name", &key.name), ("namespace", &key.namespace)];
    let other = own.into_iter().find_map(|(field, own)| {
        let sent = metadata[field].as_str().filter(|sent| *sent != &**own)?;
        Some(format!(
            "the {field} of the object ({sent}) does not match the {field} on the URL ({own})"
        ))
    });
    Err(Refusal::bad_request(if !body.is_object() {
        "the body is no object".to_owned()
    } else if body["apiVersion"] != kind.api_version || body["kind"] != kind.name {
        format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            body["apiVersion"], kind.api_version
        )
    } else if metadata.get("name").is_none() {
        let name = &key.name;
        format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    } else if let Some(other) = other {
        other
    } else {
        return Ok(());
    }))
}

/// Checks that values have the types of the schema. An applied configuration with another type is rejected before the merge.
pub(super) fn types(key: &Key, body: &Value) -> Result<(), Refusal> {
    let resource = key.kind.resource;
    let mut maps = ["labels", "annotations"]
        .map(|field| (field, &body["metadata"][field]))
        .to_vec();
    if matches!(resource, "configmaps" | "secrets") {
        maps.push(("data", &body["data"]));
    }
    let untyped = maps.into_iter().find_map(|(field, map)| match map {
        Value::Null => None,
        Value::Object(map) => {
            let (key, _) = map.iter().find(|(_, value)| !value.is_string())?;
            Some(format!("{field}.{key}"))
        }
        _ => Some(field.to_owned()),
    });
    if let Some(field) = untyped {
        let (version, kind) = (key.kind.api_version, key.kind.name);
        let object = format!("({}/{}; {version}, Kind={kind})", key.namespace, key.name);
        let message =
            format!("failed to create typed patch object {object}: {field}: expected string");
        return Err(Refusal::without_reason(500, message));
    }
    let values = body["data"].as_object().into_iter().flat_map(Map::values);
    let mut texts = values.filter_map(Value::as_str);
    match texts.find_map(|text| BASE64.decode(text).err()) {
        Some(error) if resource == "secrets" => Err(Refusal::without_reason(
            500,
            format!("unable to convert unstructured object to /v1, Kind=Secret: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Keeps the fields that the request may write: the status or all others, if the status is a subresource.
pub(super) fn scope(target: &Target, content: &mut Value) {
    if let Some(fields) = content
        .as_object_mut()
        .filter(|_| target.kind.handling >= Handling::Status)
    {
        fields.retain(|field, _| match field.as_str() {
            "apiVersion" | "kind" => true,
            field => (field == "status") == target.status,
        });
    }
}

/// Sets the default values of the API server.
pub(super) fn defaults(key: &Key, content: &mut Value) {
    content["apiVersion"] = json!(key.kind.api_version);
    content["kind"] = json!(key.kind.name);
    match key.kind.resource {
        "secrets" if content.get("type").is_none() => content["type"] = json!("Opaque"),
        "namespaces" => {
            content["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(*key.name);
        }
        _ => {}
    }
}

/// Adds fields of controllers and of the API server that have no owner, and removes default values that it omits.
pub(super) fn settle(key: &Key, content: &mut Value) {
    if key.kind.resource == "namespaces" {
        content["spec"] = json!({"finalizers": ["kubernetes"]});
        if content["status"].is_null() {
            content["status"] = json!({"phase": "Active"});
        }
    }
    // The API server omits `globalDefault: false` and `paused: false`, but keeps their owners.
    if key.kind.resource == "priorityclasses"
        && let Some(content) = content.as_object_mut()
    {
        content.retain(|field, value| field != "globalDefault" || *value != json!(false));
    }
    if key.kind.resource == "deployments"
        && let Some(spec) = content["spec"].as_object_mut()
    {
        spec.retain(|field, value| field != "paused" || *value != json!(false));
    }
}

/// Checks whether an object may replace the object before it.
pub(super) fn object(key: &Key, before: &Value, content: &Value) -> Result<(), Refusal> {
    let complaints = match key.kind.resource {
        "secrets" => secret(before, content),
        TRUST_BUNDLES => bundle(&key.name, before, content),
        "deployments" if changed(before, content, "/spec/selector") => {
            vec![invalid("spec.selector", "field is immutable")]
        }
        _ => Vec::new(),
    };
    match complaints.as_slice() {
        [] => Ok(()),
        complaints => Err(Refusal::invalid(key, complaints)),
    }
}

fn secret(before: &Value, content: &Value) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    if changed(before, content, "/type") {
        let why = format!("{}: field is immutable", content["type"]);
        complaints.push(invalid("type", &why));
    }
    let field = ".dockerconfigjson";
    if content["type"] == "kubernetes.io/dockerconfigjson" {
        let bytes = content["data"][field].as_str().map(|it| BASE64.decode(it));
        let bytes = bytes.map(Result::unwrap_or_default);
        let is_object = |it: &Vec<u8>| serde_json::from_slice::<Map<_, Value>>(it).is_ok();
        let field = format!("data[{field}]");
        match bytes {
            None => complaints.push((field, "FieldValueRequired", "Required value".to_owned())),
            Some(bytes) if is_object(&bytes) => {}
            Some(_) => {
                let why = "\"<secret contents redacted>\": not a JSON object";
                complaints.push(invalid(&field, why));
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
