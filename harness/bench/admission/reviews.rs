//! AdmissionReviews of Pods in three sizes, as an API server sends them.
//!
//! `pod.json` contains the data that an API server adds before admission: defaults, the service account's volume, and
//! `managedFields` of every field. Images are from a registry that the configuration replaces; init containers are native
//! sidecars. The bytes are the same in every run except for the UID, which ends with the number of the request.

use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// One container: about 3.5 kB.
    Small,
    /// Two containers and a native sidecar: about 9.8 kB.
    Typical,
    /// Eight containers and two native sidecars with 60 variables each: about 82 kB.
    Large,
}

impl Size {
    /// Returns the numbers of containers, of init containers, and of variables in each.
    fn counts(self) -> (usize, usize, usize) {
        match self {
            Self::Small => (1, 0, 2),
            Self::Typical => (2, 1, 6),
            Self::Large => (8, 2, 60),
        }
    }
}

/// Returns the Pod of a ReplicaSet before its creation.
pub(super) fn pod(size: Size, namespace: &str) -> anyhow::Result<Value> {
    let template: Value = serde_json::from_str(include_str!("pod.json"))?;
    let (containers, sidecars, variables) = size.counts();
    let list = |name: &str, count: usize| -> Vec<Value> {
        let member = |number| container(&template, &format!("{name}-{number}"), (size, variables));
        (0..count).map(member).collect()
    };
    let mut sidecars = list("sidecar", sidecars);
    for sidecar in &mut sidecars {
        sidecar["restartPolicy"] = json!("Always");
    }
    let (mut metadata, mut spec) = (template["metadata"].clone(), template["spec"].clone());
    metadata["namespace"] = json!(namespace);
    let fields = &mut metadata["managedFields"][0]["fieldsV1"]["f:spec"];
    for (field, members) in [
        ("containers", list("service", containers)),
        ("initContainers", sidecars),
    ] {
        if !members.is_empty() {
            fields[format!("f:{field}")] = fields_of_list(&members);
            spec[field] = json!(members);
        }
    }
    Ok(json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}}))
}

/// Returns the review of the Pod's creation, with the fields in the order of the API server.
pub(super) fn review(pod: &Value) -> String {
    let namespace = pod["metadata"]["namespace"].as_str();
    let review = include_str!("review.txt").trim_end();
    let review = review.replace("NAMESPACE", namespace.unwrap_or_default());
    review.replace("POD", &pod.to_string())
}

fn container(template: &Value, name: &str, (size, variables): (Size, usize)) -> Value {
    let mut container = template["container"].clone();
    if size != Size::Small {
        json_patch::merge(&mut container, &template["details"]);
    }
    container["name"] = json!(name);
    let image = format!("{REGISTRY}/kyma-project/prod/{name}:1.42.{variables}");
    container["image"] = json!(image);
    let variable = |number| json!({"name": format!("SETTING_{number:02}"), "value": format!("value-{number:02}")});
    container["env"] = (0..variables).map(variable).collect();
    container
}

/// Returns the managed fields of a list whose members are identified by their names.
fn fields_of_list(members: &[Value]) -> Value {
    let field = |member: &Value| {
        let key = format!("k:{}", json!({"name": member["name"]}));
        (key, fields_of(member))
    };
    Value::Object(members.iter().map(field).collect())
}

fn fields_of(value: &Value) -> Value {
    let mut fields = Map::from_iter([(".".to_owned(), json!({}))]);
    for (name, value) in value.as_object().into_iter().flatten() {
        let below = match (name.as_str(), value) {
            // The API server adds the service account's mount after it records the manager's fields.
            ("volumeMounts", _) => continue,
            ("env", Value::Array(members)) => fields_of_list(members),
            (_, Value::Object(_)) => fields_of(value),
            _ => json!({}),
        };
        fields.insert(format!("f:{name}"), below);
    }
    Value::Object(fields)
}

pub(super) const REGISTRY: &str = "ghcr.io";

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, Pod};

    use super::*;
    use crate::load::PLACEHOLDER;

    #[test]
    fn review_has_the_size_that_is_published_and_the_shape_of_an_api_servers() {
        for (size, expected, containers, sidecars) in [
            (Size::Small, 3_500_usize, 1, 0),
            (Size::Typical, 9_800, 2, 1),
            (Size::Large, 82_000, 8, 2),
        ] {
            let text = review(&pod(size, "orders").unwrap());
            let length = text.len();
            assert!(length.abs_diff(expected) <= expected / 20, "{length} bytes");
            assert_eq!(text.matches(PLACEHOLDER).count(), 1);
            let review: Value = serde_json::from_str(&text).unwrap();
            let pod = serde_json::from_value(review["request"]["object"].clone());
            let Pod { metadata, spec, .. } = pod.unwrap();
            let spec = spec.unwrap();
            let init = spec.init_containers.unwrap_or_default();
            let is_sidecar = |it: &Container| it.restart_policy.as_deref() == Some("Always");
            assert!(init.iter().all(is_sidecar));
            assert_eq!((spec.containers.len(), init.len()), (containers, sidecars));
            assert_eq!(metadata.managed_fields.unwrap().len(), 1);
        }
    }
}
