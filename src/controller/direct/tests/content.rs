//! The sources on the control plane, as the watches would read them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::sync::ObjectNames;
use policy::sync::Salt;
use policy::sync::sources::{
    SourceState, Sources, read_configuration, read_pull_secret, read_trust_bundle,
};
use serde_json::json;

/// The sources on the control plane; `None` if the object does not exist.
#[derive(Clone)]
pub(super) struct Content {
    pub(super) names: ObjectNames,
    pub(super) password: Option<&'static str>,
    pub(super) roots: Option<String>,
    pub(super) document: Option<String>,
}

impl Content {
    pub(super) fn registry(&mut self, registry: &str) {
        self.document = Some(json!({"overrides": {"docker.io": registry}}).to_string());
    }

    pub(super) fn read(&self) -> Sources {
        let salt = salt();
        let auth = self.password.map(|password| {
            let auth = STANDARD.encode(format!("user:{password}"));
            json!({"auths": {"registry.example": {"auth": auth}}}).to_string()
        });
        let data = self
            .document
            .clone()
            .map(|document| BTreeMap::from([("rt-bootstrapper-config.json".to_owned(), document)]));
        Sources {
            names: self.names.clone(),
            pull_secret: SourceState::of(auth.as_ref().map(|auth| {
                let kind = Some("kubernetes.io/dockerconfigjson");
                read_pull_secret(&salt, kind, Some(auth.as_bytes()))
            })),
            trust_bundle: SourceState::of(
                (self.roots.as_ref()).map(|roots| read_trust_bundle(&salt, None, Some(roots))),
            ),
            configuration: SourceState::of(
                (data.as_ref()).map(|data| read_configuration(&salt, Some(data))),
            ),
        }
    }
}

pub(super) fn salt() -> Salt {
    Salt::new("kcp-uid")
}
