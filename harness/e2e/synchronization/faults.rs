//! Faults of a runtime cluster, injected on its node and in its API.
//!
//! [`Clusters::block_connections`] and [`Clusters::accept_writes`] end them, also if there is none.

use std::time::Duration;

use anyhow::Result;
use http::Method;
use serde_json::json;
use tokio::time::timeout;

use super::clusters::Clusters;
use super::source::Source;
use crate::definitions::{check, eventually};
use crate::rollout::filter;
use testkit::client::Answer;

impl Clusters {
    /// Rejects connections from KCP, or accepts them again. The test uses another address.
    pub(crate) async fn block_connections(&self, number: usize, is_blocked: bool) -> Result<()> {
        let address = self.kcp.cluster.node_address().await?;
        let rule = format!("INPUT -s {address} -j REJECT");
        filter(&self.runtimes[number].cluster, "filter", &rule, is_blocked).await
    }

    /// Denies writes to the pull Secret with an admission policy, and waits until the policy is active.
    pub(crate) async fn deny_secret(&self, number: usize) -> Result<()> {
        self.runtimes[number].cluster.apply(DENIAL).await?;
        eventually("the policy is active", async || {
            let answer = self.touch(number, Source::PullSecret).await?;
            check(!answer.status.is_success(), answer.status)
        })
        .await
    }

    /// Delays writes to the ConfigMap with a webhook that does not respond.
    pub(crate) async fn delay_config_map(&self, number: usize) -> Result<()> {
        let cluster = &self.runtimes[number].cluster;
        filter(cluster, "filter", SILENCE, true).await?;
        cluster.apply(SILENT_WEBHOOK).await?;
        eventually("writes wait", async || {
            let write = self.touch(number, Source::Configuration);
            let written = timeout(Duration::from_secs(5), write).await;
            check(written.is_err(), "an answer within five seconds")
        })
        .await
    }

    /// Writes to the copy of a source without changing it.
    async fn touch(&self, number: usize, source: Source) -> Result<Answer> {
        let path = format!("{}?dryRun=All", source.on_skr());
        let touch = json!({ "metadata": { "labels": { "touched": "x" } } });
        let api = &self.runtimes[number].api;
        api.ask(Method::PATCH, &path, Some(&touch)).await
    }

    /// Removes the objects that deny or delay writes.
    pub(crate) async fn accept_writes(&self, number: usize) -> Result<()> {
        let cluster = &self.runtimes[number].cluster;
        cluster.delete(DENIAL).await?;
        cluster.delete(SILENT_WEBHOOK).await?;
        filter(cluster, "filter", SILENCE, false).await
    }
}

/// A policy that denies writes to the pull Secret.
const DENIAL: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: scenario-denial}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: ['']
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [secrets]
      resourceNames: [registry-credentials]
  validations: [{expression: 'false', message: not in this cluster}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: scenario-denial}
spec: {policyName: scenario-denial, validationActions: [Deny]}
";
/// A webhook for the ConfigMap at an address for which packets are dropped.
const SILENT_WEBHOOK: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: scenario-silence}
webhooks:
- name: silence.scenario.test
  clientConfig: {url: 'https://127.0.0.1:9/'}
  rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  matchConditions: [{name: configuration, expression: request.name == 'rt-bootstrapper-config'}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kyma-system}}
  failurePolicy: Ignore
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
";
/// Rule that drops packets to the port of [`SILENT_WEBHOOK`], so that connections are not refused.
const SILENCE: &str = "OUTPUT -p tcp -d 127.0.0.1 --dport 9 -j DROP";
