//! What a cluster can tell about a failure: objects, events, logs of Pods and of the node's own parts.
//!
//! Invariant: collecting never fails; what cannot be had is noted in the evidence itself. Secrets are not collected.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Cluster;
use super::node::PodTarget;
use crate::evidence::Evidence;

impl Cluster {
    /// Collects what explains a failure into a folder named after the cluster.
    pub async fn collect_evidence(&self, evidence: &Evidence) {
        let name = self.name();
        evidence.keep(&format!("{name}/provider.txt"), self.provider());
        let pods = self.keep_all::<Pod>(evidence, "pods").await;
        self.keep_all::<Event>(evidence, "events").await;
        self.keep_all::<Node>(evidence, "nodes").await;
        self.keep_all::<Namespace>(evidence, "namespaces").await;
        self.keep_all::<ConfigMap>(evidence, "configmaps").await;
        for pod in &pods {
            self.keep_logs(evidence, pod).await;
        }
        let node = &self.node;
        evidence.keep_result(
            &format!("{name}/container.log"),
            node.container_log().await.map_err(chain),
        );
        match node.folder(NODE_LOGS).await {
            Ok(archive) => unpack(evidence, name, &archive),
            Err(error) => {
                evidence.keep_result(&format!("{name}{NODE_LOGS}"), Err::<&str, _>(chain(error)));
            }
        }
    }

    async fn keep_all<K>(&self, evidence: &Evidence, file: &str) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        let listed = Api::<K>::all(self.client())
            .list(&ListParams::default())
            .await;
        let file = format!("{}/{file}.yaml", self.name());
        match listed {
            Ok(mut list) => {
                for item in &mut list.items {
                    item.managed_fields_mut().clear();
                }
                evidence.keep_result(&file, serde_saphyr::to_string(&list.items));
                list.items
            }
            Err(error) => {
                evidence.keep_result(&file, Err::<&str, _>(error));
                Vec::new()
            }
        }
    }

    async fn keep_logs(&self, evidence: &Evidence, pod: &Pod) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        for container in containers {
            let target = PodTarget {
                namespace: &namespace,
                pod: &name,
                container: Some(&container.name),
            };
            let file = format!(
                "{}/logs/{namespace}/{name}/{}.log",
                self.name(),
                container.name
            );
            evidence.keep_result(&file, self.pod_logs(target).await.map_err(chain));
        }
    }
}

fn unpack(evidence: &Evidence, name: &str, archive: &[u8]) {
    let folder = evidence.folder().join(name).join("node");
    let unpacked =
        std::fs::create_dir_all(&folder).and_then(|()| tar::Archive::new(archive).unpack(&folder));
    if let Err(error) = unpacked {
        evidence.keep_result(&format!("{name}/node"), Err::<&str, _>(error));
    }
}

fn chain(error: impl Into<anyhow::Error>) -> anyhow::Error {
    error.into()
}

const NODE_LOGS: &str = "/var/log/kube";
