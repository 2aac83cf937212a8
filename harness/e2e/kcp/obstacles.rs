//! What stands in the way of writes to a runtime, and its removal.
//!
//! Invariant: none of it is on the control plane, and what was put there is gone after [`Stage::clear_obstacles`] and
//! [`Stage::admit`], however often they are called.

use std::time::Duration;

use anyhow::ensure;
use api::names::{CONFIG_MAP, SKR_NAMESPACE};
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::PATIENCE;
use super::objects::{delete, found};
use super::source::Source;
use super::stage::Stage;
use testkit::until::until;

impl Stage {
    /// Keeps the control plane out of a runtime; the harness comes another way.
    pub(super) async fn shut_out(&self, number: usize) -> anyhow::Result<()> {
        let address = self.plane.cluster.node_address().await?;
        self.on_node(
            number,
            &["iptables", "-I", "INPUT", "-s", &address, "-j", "REJECT"],
        )
        .await
    }

    /// Lets the control plane in again.
    pub(super) async fn admit(&self, number: usize) -> anyhow::Result<()> {
        let address = self.plane.cluster.node_address().await?;
        let rule = format!("while iptables -D INPUT -s {address} -j REJECT; do :; done; true");
        self.on_node(number, &["sh", "-c", &rule]).await
    }

    async fn on_node(&self, number: usize, argv: &[&str]) -> anyhow::Result<()> {
        let output = self.skrs[number].cluster.exec_on_node(argv).await?;
        ensure!(output.code == 0, "{argv:?}: {output:?}");
        Ok(())
    }

    /// An admission policy on a runtime that denies the pull Secret in the product's namespace.
    pub(super) async fn deny_secret(&self, number: usize) -> anyhow::Result<()> {
        for object in denial() {
            self.skrs[number].cluster.apply(&object.to_string()).await?;
        }
        Ok(())
    }

    /// A quota on a runtime for which the pull Secret is one too many: it has to be made anew.
    pub(super) async fn crowd(&self, number: usize) -> anyhow::Result<()> {
        let skr = &self.skrs[number];
        skr.cluster.apply(&quota().to_string()).await?;
        let path = quota_path();
        until("the quota is in force", PATIENCE, || async {
            let live = found(&skr.dialogue, &path).await?.unwrap_or_default();
            ensure!(!live["status"]["used"].is_null(), "{}", live["status"]);
            anyhow::Ok(())
        })
        .await?;
        delete(&skr.dialogue, &Source::PullSecret.on_skr()).await
    }

    /// Writes of the configuration to a runtime wait for a webhook that never answers, and then go through.
    pub(super) async fn stall(&self, number: usize) -> anyhow::Result<()> {
        let rule = format!("iptables -I {SILENCE}");
        self.on_node(number, &["sh", "-c", &rule]).await?;
        let skr = &self.skrs[number];
        skr.cluster.apply(&silent_webhook().to_string()).await?;
        let path = format!("{}?dryRun=All", Source::Configuration.on_skr());
        let touch = json!({ "metadata": { "labels": { "touched": "x" } } });
        until("writes wait", PATIENCE, || async {
            let write = skr.dialogue.ask(Method::PATCH, &path, Some(&touch));
            timeout(Duration::from_secs(1), write).await.is_err()
        })
        .await?;
        Ok(())
    }

    /// Takes it away, whichever it is.
    pub(super) async fn clear_obstacles(&self, number: usize) -> anyhow::Result<()> {
        let objects = denial().into_iter().chain([quota(), silent_webhook()]);
        for object in objects {
            self.skrs[number]
                .cluster
                .delete(&object.to_string())
                .await?;
        }
        let rule = format!("while iptables -D {SILENCE}; do :; done; true");
        self.on_node(number, &["sh", "-c", &rule]).await
    }
}

fn quota() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "scenario-quota", "namespace": SKR_NAMESPACE },
        "spec": { "hard": { "count/secrets": "0" } },
    })
}

fn quota_path() -> String {
    format!("/api/v1/namespaces/{SKR_NAMESPACE}/resourcequotas/scenario-quota")
}

fn silent_webhook() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "scenario-silence" },
        "webhooks": [{
            "name": "silence.scenario.test",
            "clientConfig": { "url": "https://127.0.0.1:9/" },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }],
            "matchConditions": [{
                "name": "configuration",
                "expression": format!("request.name == '{CONFIG_MAP}'"),
            }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": SKR_NAMESPACE } },
            "failurePolicy": "Ignore", "timeoutSeconds": 30, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

fn denial() -> [Value; 2] {
    let name = "scenario-denial";
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["secrets"], "resourceNames": [api::names::PULL_SECRET],
                }] },
                "validations": [{ "expression": "false", "message": "not in this cluster" }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": ["Deny"] },
        }),
    ]
}

/// Packets to the port of [`silent_webhook`] get lost, so that nobody is refused there.
const SILENCE: &str = "OUTPUT -p tcp -d 127.0.0.1 --dport 9 -j DROP";
