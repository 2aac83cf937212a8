//! The rules of the API server for Pods that a patch of the webhook could violate.
//!
//! Source: `ValidateVolumeMounts`, `ValidateVolumeDevices`, `validateVolumes`, `ValidateEnv` and `validateImagePullSecrets` in
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/core/validation/validation.go>.
//! The Pod is typed, so a value of the wrong type is a violation as well.

use std::collections::{BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::{
    Container, EnvVar, Pod, PodSpec, ProjectedVolumeSource, Volume, VolumeDevice, VolumeMount,
};
use rstest::rstest;
use serde_json::{Value, json};

type Volumes<'p> = HashMap<&'p str, &'p Volume>;

/// Returns every rule that the Pod violates, with the field, as the API server would list them.
pub(super) fn violations(pod: &Value) -> BTreeSet<String> {
    let pod: Pod = match serde_json::from_value(pod.clone()) {
        Ok(pod) => pod,
        Err(error) => return BTreeSet::from([error.to_string()]),
    };
    let mut found = BTreeSet::new();
    let spec = pod.spec.unwrap_or_default();
    let volumes = check_volumes(&spec, &mut found);
    check_containers(&spec, &volumes, &mut found);
    found
}

fn check_volumes<'p>(spec: &'p PodSpec, found: &mut BTreeSet<String>) -> Volumes<'p> {
    let mut names = Volumes::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let at = format!("volumes[{index}]");
        if !is_label(&volume.name) {
            found.insert(format!("{at}.name: not a DNS label: {}", volume.name));
        }
        if names.insert(&volume.name, volume).is_some() {
            found.insert(format!("{at}.name: duplicate: {}", volume.name));
        }
        let Value::Object(fields) = json!(volume) else {
            unreachable!("a volume is an object");
        };
        if fields.len() != 2 {
            found.insert(format!("{at}: not exactly one source"));
        }
        if let Some(projected) = &volume.projected {
            check_projected(&at, projected, found);
        }
    }
    names
}

fn check_projected(at: &str, projected: &ProjectedVolumeSource, found: &mut BTreeSet<String>) {
    if projected
        .default_mode
        .is_some_and(|mode| !(0..=0o777).contains(&mode))
    {
        found.insert(format!("{at}.projected.defaultMode: not in 0..=0777"));
    }
    let mut paths = HashSet::new();
    for source in projected.sources.iter().flatten() {
        let Some(bundle) = &source.cluster_trust_bundle else {
            continue;
        };
        if bundle.name.is_some() == bundle.signer_name.is_some() {
            found.insert(format!("{at}.projected: not one of name and signerName"));
        }
        if !is_descending(&bundle.path) || !paths.insert(&bundle.path) {
            found.insert(format!("{at}.projected: path: {}", bundle.path));
        }
    }
}

fn check_containers(spec: &PodSpec, volumes: &Volumes<'_>, found: &mut BTreeSet<String>) {
    let mut names = HashSet::new();
    let init = spec.init_containers.iter().flatten();
    let lists = [
        ("initContainers", init.collect::<Vec<_>>()),
        ("containers", spec.containers.iter().collect()),
    ];
    for (list, containers) in lists {
        for (index, container) in containers.into_iter().enumerate() {
            let at = format!("{list}[{index}]");
            if !is_label(&container.name) || !names.insert(container.name.clone()) {
                found.insert(format!("{at}.name: not a DNS label, or duplicate"));
            }
            let image = container.image.as_deref().unwrap_or_default();
            if image.is_empty() || image.trim() != image {
                found.insert(format!("{at}.image: empty, or surrounded by spaces"));
            }
            check_env(&at, container.env.iter().flatten(), found);
            check_mounts(&at, container, volumes, found);
            check_devices(&at, container, volumes, found);
        }
    }
}

/// Checks the environment of a container. Duplicate names are allowed: the last entry is used.
fn check_env<'p>(at: &str, env: impl Iterator<Item = &'p EnvVar>, found: &mut BTreeSet<String>) {
    for (index, variable) in env.enumerate() {
        let is_printable = variable.name.bytes().all(|it| matches!(it, b' '..=b'~'));
        if variable.name.is_empty() || !is_printable || variable.name.contains('=') {
            found.insert(format!("{at}.env[{index}].name: {:?}", variable.name));
        }
        let value = variable.value.as_deref().unwrap_or_default();
        if variable.value_from.is_some() && !value.is_empty() {
            found.insert(format!("{at}.env[{index}]: value and valueFrom"));
        }
    }
}

fn check_mounts(
    at: &str,
    container: &Container,
    volumes: &Volumes<'_>,
    found: &mut BTreeSet<String>,
) {
    let devices: &[VolumeDevice] = container.volume_devices.as_deref().unwrap_or_default();
    let mut paths = HashSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = format!("{at}.volumeMounts[{index}]");
        if !volumes.contains_key(mount.name.as_str()) {
            found.insert(format!("{at}.name: no such volume: {}", mount.name));
        }
        if mount.mount_path.is_empty() || !paths.insert(&mount.mount_path) {
            found.insert(format!("{at}.mountPath: empty, or not unique"));
        }
        if devices.iter().any(|device| device.name == mount.name) {
            found.insert(format!("{at}.name: already exists in volumeDevices"));
        }
        if devices
            .iter()
            .any(|device| device.device_path == mount.mount_path)
        {
            found.insert(format!("{at}.mountPath: already exists in volumeDevices"));
        }
        check_sub_path(&at, mount, found);
    }
}

fn check_sub_path(at: &str, mount: &VolumeMount, found: &mut BTreeSet<String>) {
    let text = |path: &Option<String>| path.clone().unwrap_or_default();
    let (path, expression) = (text(&mount.sub_path), text(&mount.sub_path_expr));
    if !path.is_empty() && !expression.is_empty() {
        found.insert(format!("{at}: subPath and subPathExpr"));
    }
    for path in [path, expression] {
        if !path.is_empty() && !is_descending(&path) {
            found.insert(format!("{at}.subPath: {path}"));
        }
    }
}

fn check_devices(
    at: &str,
    container: &Container,
    volumes: &Volumes<'_>,
    found: &mut BTreeSet<String>,
) {
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (index, device) in container.volume_devices.iter().flatten().enumerate() {
        let at = format!("{at}.volumeDevices[{index}]");
        match volumes.get(device.name.as_str()) {
            None => drop(found.insert(format!("{at}.name: no such volume: {}", device.name))),
            Some(volume)
                if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() =>
            {
                found.insert(format!("{at}.name: not a claim: {}", device.name));
            }
            Some(_) => {}
        }
        if !names.insert(&device.name) {
            found.insert(format!("{at}.name: duplicate: {}", device.name));
        }
        if device.device_path.is_empty() || !paths.insert(&device.device_path) {
            found.insert(format!("{at}.devicePath: empty, or not unique"));
        }
        if device.device_path.split('/').any(|part| part == "..") {
            found.insert(format!("{at}.devicePath: leads upwards"));
        }
    }
}

/// Returns whether a name is an RFC 1123 label.
fn is_label(name: &str) -> bool {
    let known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&name.len())
        && name.bytes().all(known)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Returns whether a path is relative and without `..`.
fn is_descending(path: &str) -> bool {
    !path.is_empty() && !path.starts_with('/') && path.split('/').all(|part| part != "..")
}

#[rstest]
#[case::valid(json!({"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "b"}]}), None)]
#[case::device(json!({"name": "c", "image": "x", "volumeDevices": [{"name": "d", "devicePath": "/a"}]}), None)]
#[case::variable_twice(json!({"name": "c", "image": "x", "env": [{"name": "A"}, {"name": "A"}]}), None)]
#[case::name(json!({"name": "C", "image": "x"}), Some(".name: not a DNS label"))]
#[case::no_image(json!({"name": "c"}), Some(".image: empty"))]
#[case::wrong_type(json!({"name": "c", "image": "x", "env": [{"name": 1}]}), Some("invalid type"))]
#[case::no_variable_name(json!({"name": "c", "image": "x", "env": [{"value": "x"}]}), Some(".env[0].name"))]
#[case::two_values(json!({"name": "c", "image": "x", "env": [{"name": "A", "value": "x", "valueFrom": {}}]}), Some("value and valueFrom"))]
#[case::mount_without_volume(json!({"name": "c", "image": "x", "volumeMounts": [{"name": "w", "mountPath": "/a"}]}), Some("no such volume: w"))]
#[case::mounts_at_one_path(json!({"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "d", "mountPath": "/a"}]}), Some("mountPath: empty, or not unique"))]
#[case::upward_sub_path(json!({"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "../b"}]}), Some("subPath: ../b"))]
#[case::two_sub_paths(json!({"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "b", "subPathExpr": "c"}]}), Some("subPath and subPathExpr"))]
#[case::mount_at_a_device(json!({"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/a"}], "volumeDevices": [{"name": "d", "devicePath": "/a"}]}), Some("mountPath: already exists in volumeDevices"))]
#[case::mount_of_a_device(json!({"name": "c", "image": "x", "volumeMounts": [{"name": "d", "mountPath": "/a"}], "volumeDevices": [{"name": "d", "devicePath": "/b"}]}), Some("name: already exists in volumeDevices"))]
#[case::device_without_volume(json!({"name": "c", "image": "x", "volumeDevices": [{"name": "e", "devicePath": "/a"}]}), Some("no such volume: e"))]
#[case::device_without_claim(json!({"name": "c", "image": "x", "volumeDevices": [{"name": "v", "devicePath": "/a"}]}), Some("not a claim: v"))]
fn a_container_is_judged_as_the_api_server_does(
    #[case] container: Value,
    #[case] expected: Option<&str>,
) {
    let volumes = json!([
        {"name": "v", "emptyDir": {}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "d"}},
    ]);
    let found = violations(&json!({"spec": {"containers": [container], "volumes": volumes}}));
    assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
    let text = found.into_iter().next().unwrap_or_default();
    assert!(text.contains(expected.unwrap_or_default()), "{text}");
}

#[rstest]
#[case::bundle(json!([{"name": "v", "projected": {"defaultMode": 420, "sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}}]), None)]
#[case::name(json!([{"name": "V_", "emptyDir": {}}]), Some("not a DNS label: V_"))]
#[case::twice(json!([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]), Some("duplicate: v"))]
#[case::no_source(json!([{"name": "v"}]), Some("not exactly one source"))]
#[case::two_sources(json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]), Some("not exactly one source"))]
#[case::mode(json!([{"name": "v", "projected": {"defaultMode": 4200}}]), Some("defaultMode"))]
#[case::mode_as_text(json!([{"name": "v", "projected": {"defaultMode": "420"}}]), Some("invalid type"))]
#[case::bundle_without_name(json!([{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}]}}]), Some("name and signerName"))]
#[case::absolute_file(json!([{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "/p"}}]}}]), Some("path: /p"))]
fn a_volume_is_judged_as_the_api_server_does(
    #[case] volumes: Value,
    #[case] expected: Option<&str>,
) {
    let found = violations(&json!({"spec": {"containers": [], "volumes": volumes}}));
    assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
    let text = found.into_iter().next().unwrap_or_default();
    assert!(text.contains(expected.unwrap_or_default()), "{text}");
}
