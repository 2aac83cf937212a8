//! What must hold for every Pod: the second pass is empty, unknown fields survive, only `add` and `replace` on allowed
//! paths, unique mount paths and volume names in what comes out.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::case::{Given, configuration, decide_on};
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
        json!({"name": "KYMA_FIPS_MODE_ENABLED", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}),
        json!({"name": "KYMA_LANDSCAPE", "value": "other"}),
        json!({"name": "A", "value": "b", "newField": 1}),
    ]);
    prop_oneof![
        Just(Value::Null),
        prop::collection::vec(entry, 0..4).prop_map(Value::from),
    ]
}

/// Distinct mount paths and volume names, as the API server wants them; ours among them.
fn mounts() -> impl Strategy<Value = Value> {
    let mount = prop::sample::select(vec![
        ("own", "/etc/ssl/certs"),
        ("own", "/etc/ssl"),
        ("own", "/etc/ssl/certs/"),
        ("own", "/etc/ssl/certs/a.pem"),
        ("own", "/data"),
        ("certs", "/etc/ssl/certs"),
        ("certs", "/elsewhere"),
    ]);
    let list = prop::collection::vec(mount, 0..3).prop_map(|mounts| {
        let mut seen = HashSet::new();
        mounts
            .into_iter()
            .filter(|(_, path)| seen.insert(*path))
            .map(|(name, path)| json!({"name": name, "mountPath": path, "newField": {"a": 1}}))
            .collect::<Value>()
    });
    prop_oneof![Just(Value::Null), list]
}

fn containers() -> impl Strategy<Value = Value> {
    let container = (image(), env(), mounts());
    prop::collection::vec(container, 0..4).prop_map(|containers| {
        containers
            .into_iter()
            .enumerate()
            .map(|(index, (image, env, mounts))| {
                json!({
                    "name": format!("c{index}"), "image": image, "env": env,
                    "volumeMounts": mounts, "newField": ["kept"],
                })
            })
            .collect::<Value>()
    })
}

fn volumes() -> impl Strategy<Value = Value> {
    let ours = json!({"name": "certs", "projected": {"sources": [{"clusterTrustBundle": {"name": "ctb", "path": "ca.pem"}}]}});
    let foreign = json!({"name": "certs", "emptyDir": {}});
    let image =
        json!({"name": "model", "image": {"reference": "a.io/x:1", "pullPolicy": "Always"}});
    let unread = json!({"name": "odd", "image": {"reference": "UPPER", "newField": 1}});
    prop::sample::select(vec![
        Value::Null,
        json!([]),
        json!([{"name": "own", "emptyDir": {}}]),
        json!([{"name": "own", "emptyDir": {}}, ours]),
        json!([foreign]),
        json!([unread, image]),
    ])
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
    (annotations(), containers(), containers(), volumes()).prop_map(
        |(annotations, init, main, volumes)| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "newTop": {"x": [1]},
                "metadata": {"name": "p", "annotations": annotations, "managedFields": [{"manager": "x"}]},
                "spec": {
                    "initContainers": init, "containers": main, "volumes": volumes,
                    "newSpecField": {"deep": true},
                },
            })
        },
    )
}

/// Overrides without a cycle: chains only lead forward.
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

/// Everything of `before` is in `after`, but for images and the variables that we replace by name.
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

fn assert_valid(pod: &Value) {
    let names: Vec<&Value> = pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|volume| &volume["name"])
        .collect();
    assert_eq!(
        names.len(),
        names.iter().collect::<HashSet<_>>().len(),
        "volume names"
    );
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array().into_iter().flatten();
            let paths: Vec<&str> = mounts.map(|it| it["mountPath"].as_str().unwrap()).collect();
            assert_eq!(
                paths.len(),
                paths.iter().collect::<HashSet<_>>().len(),
                "mount paths"
            );
        }
    }
}

proptest! {
    #[test]
    fn holds_for_every_pod(
        pod in pod(),
        overrides in overrides(),
        namespace in prop::sample::select(vec!["shop", "search"]),
        known in any::<bool>(),
    ) {
        let configuration = configuration(&document(&overrides), Some("eu-1"));
        let pull_secret = if known {
            PullSecret::Known(Keyring::parse(br#"{"auths":{"b.io":{"auth":"dTpw"}}}"#).unwrap())
        } else {
            PullSecret::Unknown
        };
        let context = Context {
            configuration: &configuration,
            namespace: None,
            pull_secret: &pull_secret,
            trust_bundle: TrustBundlePresence::Present,
        };
        let given = Given { namespace: namespace.to_owned(), ..Given::default() };
        let outcome = decide_on(&given.review(&pod, &Value::Null).to_string(), &context, &pod);
        for operation in outcome.patch.iter().flat_map(|it| it.as_array().unwrap()) {
            prop_assert!(matches!(operation["op"].as_str(), Some("add" | "replace")));
            prop_assert!(is_allowed(operation["path"].as_str().unwrap()), "{operation}");
        }
        prop_assert!(survives(&pod, &outcome.pod), "{pod}\n{}", outcome.pod);
        assert_valid(&outcome.pod);
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
        };
        let given = Given { operation: "UPDATE".into(), ..Given::default() };
        let outcome = decide_on(&given.review(&after, &before).to_string(), &context, &after);
        for operation in outcome.patch.iter().flat_map(|it| it.as_array().unwrap()) {
            prop_assert_eq!(&operation["op"], "replace");
            let path = operation["path"].as_str().unwrap();
            prop_assert!(path.ends_with("/image"));
            // The containers of both Pods are named by their places.
            prop_assert_ne!(before.pointer(path), after.pointer(path), "{}", path);
        }
    }
}
