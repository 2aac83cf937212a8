mod environment;
mod error_log;
mod former;
mod many;
mod revocation;
mod run;
mod secret;
mod state;
mod usage;
mod writer;

use std::sync::Arc;

use policy::admission::{Annotations, Configuration, Namespace, Settings};
use serde_json::{Value, json};

use crate::snapshot::{KnownNamespace, PullSecretSource};

const FEATURE: &str = "rt-cfg.kyma-project.io/add-img-pull-secret";
const NAME: &str = "registry-credentials";
const TYPE: &str = "kubernetes.io/dockerconfigjson";
/// base64 of `{"auths":{"one":{}}}` and `{"auths":{"two":{}}}`.
const ONE: &str = "eyJhdXRocyI6eyJvbmUiOnt9fX0=";
const TWO: &str = "eyJhdXRocyI6eyJ0d28iOnt9fX0=";

fn configuration(extra: &str, available: &str) -> Arc<Configuration> {
    let text = format!(
        r#"{{"overrides":{{}},"namespaceFeatures":{{}},"availableFeatures":[{available}]{extra}}}"#
    );
    let settings = Settings {
        landscape: None,
        pull_secret: NAME.to_owned(),
    };
    let document = api::config::Document::parse(&text).unwrap();
    Arc::new(Configuration::new(&document, &settings).unwrap())
}

fn with_feature() -> Arc<Configuration> {
    configuration("", &format!("{FEATURE:?}"))
}

fn source(encoded: &str) -> PullSecretSource {
    let secret = json!({"metadata": {}, "type": TYPE, "data": {".dockerconfigjson": encoded}});
    PullSecretSource::read(&serde_json::from_value(secret).unwrap()).unwrap()
}

fn namespace(asks: bool) -> KnownNamespace {
    let value = if asks { "true" } else { "" };
    KnownNamespace {
        view: Namespace {
            annotations: Annotations::collect([(FEATURE, value)]),
            ..Namespace::default()
        },
        ..KnownNamespace::default()
    }
}

/// Returns a copy as the API server stores it.
fn copy(namespace: &str, encoded: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": NAME, "namespace": namespace, "uid": format!("uid-{namespace}"), "resourceVersion": "5",
            "labels": {"rt-bootstrapper.kyma-project.io/pull-secret-copy": "true"},
            "managedFields": [{
                "manager": "rt-bootstrapper", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}, "f:type": {}},
            }],
        },
        "type": TYPE,
        "data": {".dockerconfigjson": encoded},
    })
}

/// Returns a Secret of the same name that another client created.
fn foreign(namespace: &str) -> Value {
    let mut secret = copy(namespace, TWO);
    secret["metadata"]["labels"] = json!({"team": "other"});
    secret["metadata"]["managedFields"] = json!([{
        "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {".": {}, "f:.dockerconfigjson": {}}, "f:type": {}},
    }]);
    secret
}

/// Sets the value at a JSON pointer.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}
