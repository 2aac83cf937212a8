//! What a cluster can tell about a failure: objects, Events, logs of Pods and of the node's own parts.
//!
//! Collecting never fails; what cannot be had is noted in the evidence itself. Secrets are not collected.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Cluster, PodTarget};
use crate::docker;
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
        let id = self.node.id();
        let log = docker::must(&["logs", "--tail=5000", id]).await;
        let log = log.map(|log| log.stdout + &log.stderr);
        evidence.keep_result(&format!("{name}/container.log"), log);
        let folder = evidence.folder().join(name).join("node");
        let (from, to) = (format!("{id}:{NODE_LOGS}"), folder.display().to_string());
        if let Err(error) = docker::must(&["cp", &from, &to]).await {
            evidence.keep_result(&format!("{name}{NODE_LOGS}"), Err::<&str, _>(error));
        }
    }

    async fn keep_all<K>(&self, evidence: &Evidence, file: &str) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        let file = format!("{}/{file}.yaml", self.name());
        let listed = Api::<K>::all(self.client())
            .list(&ListParams::default())
            .await;
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
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let target = PodTarget {
                namespace: &namespace,
                pod: &name,
                container: Some(&container.name),
            };
            let file = format!("{namespace}/{name}/{}.log", container.name);
            let log = self.pod_logs(target).await;
            evidence.keep_result(&format!("{}/logs/{file}", self.name()), log);
        }
    }
}

const NODE_LOGS: &str = "/var/log/kube";
