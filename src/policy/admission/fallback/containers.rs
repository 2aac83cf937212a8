//! Expressions of the policy for containers: mounts of the trust bundle, and environment variables.

use api::Feature;

use super::super::{Configuration, TrustBundlePresence};
use super::cel::{guarded, joined, literal, quote};

pub(super) fn mounts(
    configuration: &Configuration,
    presence: TrustBundlePresence,
) -> Option<String> {
    if presence != TrustBundlePresence::Present {
        return None;
    }
    let bundle = configuration.trust_bundle()?.ok()?;
    let (volume, name, file) = (
        quote(&bundle.volume),
        quote(&bundle.name),
        quote(&bundle.file),
    );
    let (mount, added) = (literal(&bundle.mount_entry), literal(&bundle.volume_entry));
    let path = quote(&format!("{}/", bundle.mount_path));
    // A path with `.`, `..` or `//` is left to the webhook.
    let clean = quote(r"^/$|^(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+/?$");
    let is_free = |taken: &str| {
        format!(
            r#"{taken}.matches({clean}) && !({taken} + "/").startsWith({path}) && !{path}.startsWith({taken} + ({taken}.endsWith("/") ? "" : "/"))"#
        )
    };
    let (mounted, device) = (is_free("m.mountPath"), is_free("d.devicePath"));
    let free = format!(
        "(!has(c.volumeMounts) || c.volumeMounts.all(m, {mounted})) && (!has(c.volumeDevices) || c.volumeDevices.all(d, {device}))"
    );
    let present =
        format!("has(object.spec.volumes) && object.spec.volumes.exists(v, v.name == {volume})");
    let foreign = format!(
        "has(object.spec.volumes) && object.spec.volumes.exists(v, v.name == {volume} && !(has(v.projected) \
         && has(v.projected.sources) && size(v.projected.sources) == 1 \
         && v.projected.sources.all(s, has(s.clusterTrustBundle) && has(s.clusterTrustBundle.name) \
         && s.clusterTrustBundle.name == {name} && s.clusterTrustBundle.path == {file})))"
    );
    let add = |list: &str| {
        format!(
            r#"(has(object.spec.{list}) ? object.spec.{list}.transformList(i, c, {free}, has(c.volumeMounts)
? JSONPatch{{op: "add", path: "/spec/{list}/" + string(i) + "/volumeMounts/-", value: dyn({mount})}}
: JSONPatch{{op: "add", path: "/spec/{list}/" + string(i) + "/volumeMounts", value: dyn([{mount}])}}) : [])"#
        )
    };
    let (init, main) = (add("initContainers"), add("containers"));
    let operations = format!(
        r#"{foreign} ? [] : {init} + {main} + ({present} || !variables.containers.exists(c, {free}) ? []
: has(object.spec.volumes) ? [JSONPatch{{op: "add", path: "/spec/volumes/-", value: {added}}}]
: [JSONPatch{{op: "add", path: "/spec/volumes", value: [{added}]}}])"#
    );
    guarded(configuration, Feature::TrustBundle, &operations)
}

/// Returns an expression for the variables that the enabled features set.
pub(super) fn wanted(configuration: &Configuration) -> Option<String> {
    let all = configuration.variables().iter();
    let all = all.filter(|it| configuration.available().contains(it.feature));
    let all = all.map(|it| {
        let (feature, name) = (quote(it.feature.key()), quote(&it.name));
        let value = quote(&it.value);
        format!(r#"{{"feature": {feature}, "name": {name}, "value": {value}}}"#)
    });
    let all = joined(all, ", ", "");
    (!all.is_empty()).then(|| format!("[{all}].filter(w, w.feature in variables.features)"))
}

/// Returns the operations that replace the whole environment of a container.
pub(super) fn environment(configuration: &Configuration) -> Option<String> {
    wanted(configuration)?;
    let is_right = "has(e.value) && e.value == w.value && !has(e.valueFrom)";
    let is_there = "has(c.env) && c.env.exists(e, e.name == w.name)";
    let is_wrong = format!("e.name == w.name && !({is_right})");
    let entry = r#"dyn({"name": w.name, "value": w.value})"#;
    let add = |list: &str| {
        format!(
            r#"(has(object.spec.{list}) ? object.spec.{list}.transformList(i, c,
variables.wanted.exists(w, !({is_there}) || c.env.exists(e, {is_wrong})),
JSONPatch{{op: "add", path: "/spec/{list}/" + string(i) + "/env", value: (has(c.env) ? c.env.map(e,
variables.wanted.exists(w, {is_wrong}) ? variables.wanted.filter(w, e.name == w.name).map(w, {entry})[0] : e) : [])
+ variables.wanted.filter(w, !({is_there})).map(w, {entry})}}) : [])"#
        )
    };
    let operations = [add("initContainers"), add("containers")].join(" + ");
    Some(format!("size(variables.wanted) == 0 ? [] : {operations}"))
}
