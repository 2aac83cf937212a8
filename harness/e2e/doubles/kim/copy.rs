//! What KIM brings to a runtime: the three sources, and the webhook where there is none.

use anyhow::Context as _;
use api::names::{CONFIG_MAP, PULL_SECRET, SKR_NAMESPACE};
use api::runtimes::{INSTALLER_MANAGER, KCP_NAMESPACE, WEBHOOK_DEPLOYMENT};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::Destination;
use crate::admission::cluster::TRUST_BUNDLE;

/// The sources as they are on KCP; `None` is one that does not exist.
pub(super) struct Sources(Vec<(Part, Option<Value>)>);

/// One of the three.
#[derive(Clone, Copy)]
enum Part {
    Configuration,
    PullSecret,
    TrustBundle,
}

/// Writes to one runtime.
pub(super) struct Copies<'a>(&'a Destination);

impl Part {
    const ALL: [Self; 3] = [Self::Configuration, Self::PullSecret, Self::TrustBundle];

    fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&match self {
            Self::Configuration => GroupVersionKind::gvk("", "v1", "ConfigMap"),
            Self::PullSecret => GroupVersionKind::gvk("", "v1", "Secret"),
            Self::TrustBundle => {
                GroupVersionKind::gvk("certificates.k8s.io", "v1beta1", "ClusterTrustBundle")
            }
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Configuration => CONFIG_MAP,
            Self::PullSecret => PULL_SECRET,
            Self::TrustBundle => TRUST_BUNDLE,
        }
    }

    fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match self {
            Self::TrustBundle => Api::all_with(client.clone(), &self.resource()),
            Self::Configuration | Self::PullSecret => {
                Api::namespaced_with(client.clone(), namespace, &self.resource())
            }
        }
    }

    /// What is copied of an object, and nothing else of it.
    fn content(self, object: &Value) -> Value {
        match self {
            Self::Configuration => json!({ "data": object["data"] }),
            Self::PullSecret => json!({ "data": object["data"], "type": object["type"] }),
            Self::TrustBundle => json!({ "spec": object["spec"] }),
        }
    }
}

impl Sources {
    pub(super) async fn read(kcp: &Client) -> anyhow::Result<Self> {
        let mut sources = Vec::new();
        for part in Part::ALL {
            let found = part.api(kcp, KCP_NAMESPACE).get_opt(part.name()).await?;
            let content = found
                .map(serde_json::to_value)
                .transpose()?
                .map(|object| part.content(&object));
            sources.push((part, content));
        }
        Ok(Self(sources))
    }
}

impl<'a> Copies<'a> {
    pub(super) fn to(destination: &'a Destination) -> Self {
        Self(destination)
    }

    pub(super) async fn bring(&self, sources: &Sources) -> anyhow::Result<()> {
        for (part, wanted) in &sources.0 {
            let api = part.api(&self.0.client, SKR_NAMESPACE);
            let found = api.get_opt(part.name()).await?;
            match (wanted, found) {
                (Some(wanted), found) => {
                    let live = found.map(serde_json::to_value).transpose()?;
                    if live.as_ref().map(|object| part.content(object)).as_ref() != Some(wanted) {
                        self.apply(*part, &api, wanted).await?;
                    }
                }
                (None, Some(_)) => {
                    api.delete(part.name(), &DeleteParams::default()).await?;
                }
                (None, None) => {}
            }
        }
        self.install().await
    }

    async fn apply(
        &self,
        part: Part,
        api: &Api<DynamicObject>,
        content: &Value,
    ) -> anyhow::Result<()> {
        let resource = part.resource();
        let mut object = content.clone();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        object["metadata"] = json!({ "name": part.name() });
        let params = PatchParams::apply(INSTALLER_MANAGER).force();
        api.patch(part.name(), &params, &Patch::Apply(&object))
            .await?;
        Ok(())
    }

    async fn install(&self) -> anyhow::Result<()> {
        let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let resource = ApiResource::from_gvk(&kind);
        let deployments: Api<DynamicObject> =
            Api::namespaced_with(self.0.client.clone(), SKR_NAMESPACE, &resource);
        if deployments.get_opt(WEBHOOK_DEPLOYMENT).await?.is_some() {
            return Ok(());
        }
        for manifest in &self.0.manifests {
            self.apply_manifest(manifest).await.with_context(|| {
                format!("{} {}", manifest["kind"], manifest["metadata"]["name"])
            })?;
        }
        Ok(())
    }

    async fn apply_manifest(&self, manifest: &Value) -> anyhow::Result<()> {
        let object: DynamicObject = serde_json::from_value(manifest.clone())?;
        let types = object.types.clone().context("no kind")?;
        let kind = GroupVersionKind::try_from(&types)?;
        let (resource, capabilities) = kube::discovery::pinned_kind(&self.0.client, &kind).await?;
        let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
        let api: Api<DynamicObject> = if capabilities.scope == kube::discovery::Scope::Namespaced {
            Api::namespaced_with(self.0.client.clone(), &namespace, &resource)
        } else {
            Api::all_with(self.0.client.clone(), &resource)
        };
        let params = PatchParams::apply(INSTALLER_MANAGER).force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object))
            .await?;
        Ok(())
    }
}
