//! Properties of every Pod: a second review has an empty patch, unknown fields are kept, a patch contains only `add`
//! and `replace` on allowed paths, and the changes violate no rule of the API server.

use std::collections::{BTreeSet, HashSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use super::case::{Given, configuration, decide_on};
use super::validation::violations;
use crate::admission::*;
use crate::image::Keyring;

const KEYS: [&str; 6] = [
    "rt-cfg.kyma-project.io/alter-img-registry",
    "rt-cfg.kyma-project.io/add-img-pull-secret",
    "rt-cfg.kyma-project.io/add-cluster-trust-bundle",
    "rt-cfg.kyma-project.io/set-fips-mode",
    "rt-cfg.kyma-project.io/set-landscape",
    "rt-cfg.kyma-project.io/all",
];

fn image() -> impl Strategy<Value = String> {
    let host = prop::sample::select(vec!["", "a.io/", "b.io/", "c.io:5000/", "docker.io/", "m/"]);
    let path = prop::sample::select(vec!["x", "x/y", "cache/x", "library/nginx", "UPPER", ""]);
    let suffix = prop::sample::select(vec!["", ":1", ":1.2-a"]);
    (host, path, suffix).prop_map(|(host, path, suffix)| format!("{host}{path}{suffix}"))
}

fn env() -> impl Strategy<Value = Value> {
    let entry = prop::sample::select(vec![
        json!({"name": "KYMA_FIPS_MODE_ENABLED", "value": "true"}),
        json!({"name": "KYMA_FIPS_MODE_ENABLED", "value": "no"}),
        json!({"name": "KYMA_FIPS_MODE_ENABLED", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        json!({"name": "KYMA_LANDSCAPE", "value": "other"}),
        json!({"name": "A", "value": "b", "newField": 1}),
    ]);
    prop_oneof![
        Just(Value::Null),
        prop::collection::vec(entry, 0..4).prop_map(Value::from),
    ]
}

/// Generates distinct mount paths, as the API server requires, including mounts of the trust bundle.
fn mounts() -> impl Strategy<Value = Value> {
    let mount = prop::sample::select(vec![
        ("own", "/etc/ssl/certs", json!({})),
        ("own", "/etc/ssl", json!({})),
        ("own", "/etc/ssl/certs/", json!({"subPath": "certs"})),
        (
            "own",
            "/etc/ssl/certs/a.pem",
            json!({"subPath": "deep/a.pem"}),
        ),
        ("own", "/data", json!({"subPathExpr": "$(A)/data"})),
        ("certs", "/etc/ssl/certs", json!({})),
        ("certs", "/elsewhere", json!({"newField": {"a": 1}})),
    ]);
    let list = prop::collection::vec(mount, 0..3).prop_map(|mounts| {
        let mut seen = HashSet::new();
        mounts
            .into_iter()
            .filter(|(_, path, _)| seen.insert(*path))
            .map(|(name, path, mut mount)| {
                mount["name"] = json!(name);
                mount["mountPath"] = json!(path);
                mount
            })
            .collect::<Value>()
    });
    prop_oneof![Just(Value::Null), list]
}

/// Generates distinct devices, some of them at the mount path of the trust bundle.
fn devices() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec![
        "/etc/ssl/certs",
        "/etc/ssl",
        "/etc/ssl/certs/",
        "/etc/ssl/certs/a",
        "/etc/ssl/certs-2",
        "/dev/xvda",
    ]);
    let list = prop::collection::vec(path, 0..3).prop_map(|paths| {
        let distinct: BTreeSet<_> = paths.into_iter().collect();
        let entries = distinct.into_iter().enumerate();
        entries
            .map(|(index, path)| json!({"name": format!("disk{index}"), "devicePath": path, "newField": 1}))
            .collect::<Value>()
    });
    prop_oneof![2 => Just(Value::Null), 1 => list]
}

fn containers(prefix: &'static str) -> impl Strategy<Value = Value> {
    let container = (image(), env(), mounts(), devices());
    prop::collection::vec(container, 0..4).prop_map(move |containers| {
        containers
            .into_iter()
            .enumerate()
            .map(|(index, (image, env, mounts, devices))| {
                json!({
                    "name": format!("{prefix}{index}"), "image": image, "env": env,
                    "volumeMounts": mounts, "volumeDevices": devices, "newField": ["kept"],
                })
            })
            .collect::<Value>()
    })
}

fn volumes() -> impl Strategy<Value = Value> {
    let ours = json!({"name": "certs", "projected": {"sources": [{"clusterTrustBundle": {"name": "ctb", "path": "ca.pem"}}]}});
    let foreign = json!({"name": "certs", "emptyDir": {}});
    let claim = json!({"name": "certs", "persistentVolumeClaim": {"claimName": "certs"}});
    let image =
        json!({"name": "model", "image": {"reference": "a.io/x:1", "pullPolicy": "Always"}});
    let unread = json!({"name": "odd", "image": {"reference": "UPPER", "newField": 1}});
    prop::sample::select(vec![
        Value::Null,
        json!([]),
        json!([{"name": "own", "emptyDir": {}}]),
        json!([{"name": "own", "emptyDir": {}}, ours]),
        json!([foreign]),
        json!([claim]),
        json!([unread, image]),
    ])
}

/// Adds the volumes that the containers name and the Pod does not have, so that most Pods are valid.
fn with_named_volumes(mut volumes: Value, containers: [&Value; 2]) -> Value {
    for container in containers.into_iter().flat_map(|it| it.as_array().unwrap()) {
        for list in ["volumeMounts", "volumeDevices"] {
            for user in container[list].as_array().into_iter().flatten() {
                let present = volumes.as_array().into_iter().flatten();
                if present.clone().any(|volume| volume["name"] == user["name"]) {
                    continue;
                }
                let mut all: Vec<Value> = present.cloned().collect();
                all.push(if list == "volumeMounts" {
                    json!({"name": user["name"], "emptyDir": {}})
                } else {
                    json!({"name": user["name"], "persistentVolumeClaim": {"claimName": "c"}})
                });
                volumes = all.into();
            }
        }
    }
    volumes
}

fn annotations() -> impl Strategy<Value = Value> {
    let value = prop::sample::select(vec!["true", "false", "True", ""]);
    let entry = (prop::sample::select(KEYS.to_vec()), value);
    prop_oneof![
        Just(Value::Null),
        prop::collection::vec(entry, 0..5).prop_map(|entries| {
            entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), json!(value)))
                .chain([("theirs".to_owned(), json!("kept"))])
                .collect::<Map<_, _>>()
                .into()
        }),
    ]
}

fn pod() -> impl Strategy<Value = Value> {
    let secrets = prop::sample::select(vec![
        Value::Null,
        json!([]),
        json!([{"name": "theirs"}, {"name": "theirs"}]),
        json!([{"name": "registry-credentials"}]),
    ]);
    let parts = (
        annotations(),
        containers("i"),
        containers("c"),
        volumes(),
        secrets,
    );
    parts.prop_map(|(annotations, init, main, volumes, secrets)| {
        let volumes = with_named_volumes(volumes, [&init, &main]);
        json!({
            "apiVersion": "v1", "kind": "Pod", "newTop": {"x": [1]},
            "metadata": {"name": "p", "annotations": annotations, "managedFields": [{"manager": "x"}]},
            "spec": {
                "initContainers": init, "containers": main, "volumes": volumes,
                "imagePullSecrets": secrets, "newSpecField": {"deep": true},
            },
        })
    })
}

fn pull_secret() -> impl Strategy<Value = PullSecret> {
    let known = Keyring::parse(br#"{"auths":{"b.io":{"auth":"dTpw"}}}"#).unwrap();
    prop::sample::select(vec![
        PullSecret::Unknown,
        PullSecret::Invalid,
        PullSecret::Known(known),
    ])
}

/// Generates overrides without a cycle.
fn overrides() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({}),
        json!({"a.io": "b.io"}),
        json!({"a.io": "b.io", "b.io": "c.io:5000/p"}),
        json!({"a.io": "a.io/cache", "docker.io": "m/hub"}),
        json!({"docker.io": "a.io/hub", "a.io": "a.io/cache", "b.io": "m"}),
        json!({"a.io": "b.io/UPPER", "docker.io": "docker.io"}),
    ])
}

fn document(overrides: &Value) -> Value {
    json!({
        "overrides": overrides,
        "clusterTrustBundle": {"name": "ctb", "certWritePath": "ca.pem", "volumeMountPath": "/etc/ssl/certs", "volumeName": "certs"},
        "availableFeatures": KEYS[..5].to_vec(),
        "namespaceFeatures": {"shop": [KEYS[5]]},
    })
}

fn is_allowed(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["metadata", "annotations", key] => *key == "rt-bootstrapper.kyma-project.io~1defaulted",
        ["metadata", "annotations"]
        | ["spec", "volumes" | "imagePullSecrets"]
        | ["spec", "volumes" | "imagePullSecrets", "-"]
        | ["spec", "volumes", _, "image", "reference"]
        | [
            "spec",
            "containers" | "initContainers",
            _,
            "image" | "env" | "volumeMounts",
        ]
        | [
            "spec",
            "containers" | "initContainers",
            _,
            "env" | "volumeMounts",
            _,
        ] => true,
        _ => false,
    }
}

/// Returns whether `after` contains all values of `before`, except images and the variables that the webhook replaces by name.
fn survives(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let name = before.get("name").and_then(Value::as_str);
            matches!(name, Some("KYMA_FIPS_MODE_ENABLED" | "KYMA_LANDSCAPE"))
                || before.iter().all(|(key, value)| {
                    let other = &after[key.as_str()];
                    let is_image = key == "image" || key == "reference";
                    (is_image && value.is_string()) || value.is_null() || survives(value, other)
                })
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() <= after.len()
                && before
                    .iter()
                    .zip(after)
                    .all(|(one, other)| survives(one, other))
        }
        (before, after) => before == after,
    }
}

/// Asserts that the changed Pod violates no rule of the API server that the original Pod does not violate.
fn assert_valid(before: &Value, after: &Value) {
    let own = violations(before);
    let added: Vec<_> = violations(after).difference(&own).cloned().collect();
    assert!(added.is_empty(), "{added:?}\n{before}\n{after}");
}

#[test]
fn generated_pods_are_valid_and_use_what_the_rules_are_about() {
    let mut runner = TestRunner::deterministic();
    let drawn: Vec<Value> = (0..400)
        .map(|_| pod().new_tree(&mut runner).unwrap().current())
        .collect();
    let having = |holds: &dyn Fn(&Value) -> bool| drawn.iter().filter(|pod| holds(pod)).count();
    let contains = |text: &'static str| having(&|pod| pod.to_string().contains(text));
    assert!(having(&|pod| violations(pod).is_empty()) >= 100);
    assert!(contains(r#""devicePath":"/etc/ssl/certs""#) >= 40);
    assert!(contains("subPath") >= 40);
    let twice = having(&|pod| pod.to_string().matches("KYMA_FIPS_MODE_ENABLED").count() > 1);
    assert!(twice >= 40);
}

proptest! {
    #[test]
    fn holds_for_every_pod(
        pod in pod(),
        overrides in overrides(),
        namespace in prop::sample::select(vec!["shop", "search"]),
        pull_secret in pull_secret(),
    ) {
        let configuration = configuration(&document(&overrides), Some("eu-1"));
        let context = Context {
            configuration: &configuration,
            namespace: None,
            pull_secret: &pull_secret,
            trust_bundle: TrustBundlePresence::Present,
            fallback_policy: false,
        };
        let given = Given { namespace: namespace.to_owned(), ..Given::default() };
        let outcome = decide_on(&given.review(&pod, &Value::Null).to_string(), &context, &pod);
        for operation in outcome.patch.iter().flat_map(|it| it.as_array().unwrap()) {
            prop_assert!(matches!(operation["op"].as_str(), Some("add" | "replace")));
            prop_assert!(is_allowed(operation["path"].as_str().unwrap()), "{operation}");
        }
        prop_assert!(survives(&pod, &outcome.pod), "{pod}\n{}", outcome.pod);
        assert_valid(&pod, &outcome.pod);
        let body = given.review(&outcome.pod, &Value::Null).to_string();
        prop_assert_eq!(decide_on(&body, &context, &outcome.pod).patch, None);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _: Result<_, _> = review::parse(&bytes);
    }

    #[test]
    fn an_update_touches_images_alone(before in pod(), after in pod(), overrides in overrides()) {
        let configuration = configuration(&document(&overrides), Some("eu-1"));
        let context = Context {
            configuration: &configuration,
            namespace: None,
            pull_secret: &PullSecret::Unknown,
            trust_bundle: TrustBundlePresence::Present,
            fallback_policy: false,
        };
        let given = Given { operation: "UPDATE".into(), ..Given::default() };
        let outcome = decide_on(&given.review(&after, &before).to_string(), &context, &after);
        for operation in outcome.patch.iter().flat_map(|it| it.as_array().unwrap()) {
            prop_assert_eq!(&operation["op"], "replace");
            let path = operation["path"].as_str().unwrap();
            prop_assert!(path.ends_with("/image"));
            // The containers of both Pods are named by their indices.
            prop_assert_ne!(before.pointer(path), after.pointer(path), "{}", path);
        }
    }
}
