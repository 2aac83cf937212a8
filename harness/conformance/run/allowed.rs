//! The list of a run's requests. A request that is missing here is rejected when a check sends it
//! ([`requests::guarded`](crate::requests::guarded)), so each new request of a check needs a line here.

use std::collections::BTreeSet;

use api::kcp::{KCP_NAMESPACE, WEBHOOK_DEPLOYMENT};
use api::names::{CONFIG_MAP, SKR_NAMESPACE};
use testkit::json::name;

use super::{Run, VERSION};
use crate::cluster::Endpoint;
use crate::model::{EventCheck, Inside, Mode, Subresource, Workload};
use crate::requests::{Allowed, kind};

impl Run<'_> {
    /// Returns the clusters, KCP first, and the permitted requests for each.
    pub(super) fn allowed(&self) -> Vec<(&Endpoint, BTreeSet<Allowed>)> {
        let kcp = self.kcp.iter().map(|it| (it, self.of_kcp()));
        let runtimes = self.runtimes.iter();
        let all = kcp.chain(runtimes.map(|it| (it, self.of_runtime(&it.name))));
        let parsed = |lines: Vec<String>| lines.iter().map(|it| Allowed::new(it)).collect();
        all.map(|(cluster, lines)| (cluster, parsed(lines)))
            .collect()
    }

    fn of_kcp(&self) -> Vec<String> {
        let landscape = &self.scenario.landscape;
        let is_direct = landscape.mode() == Some(Mode::Direct);
        let all = if is_direct { BOOTSTRAPPERS } else { RUNTIMES };
        let mut lines = self.of_both(KCP_NAMESPACE);
        lines.extend([
            format!("list {all} {KCP_NAMESPACE}/ # which runtimes are those of the run"),
            format!("get {RUNTIMES} {KCP_NAMESPACE}/{{runtime}} # timeline"),
            format!("get {KYMAS} {KCP_NAMESPACE}/{{runtime}} # timeline"),
        ]);
        for it in &landscape.watchers {
            let watcher = format!("{WATCHERS} {}/{}", it.namespace, it.name);
            lines.push(format!("get {watcher} # what is reported"));
        }
        lines
    }

    /// Returns the requests for identity, permissions, and the three objects of the configuration.
    fn of_both(&self, namespace: &str) -> Vec<String> {
        let landscape = &self.scenario.landscape;
        let mut lines = vec![
            format!("get {VERSION} # version of the API server"),
            "get namespaces kube-system # identity of the cluster".to_owned(),
            "create selfsubjectaccessreviews.v1.authorization.k8s.io # ask for rights".to_owned(),
            format!("get configmaps {namespace}/{CONFIG_MAP} # the configuration document"),
        ];
        if let Some(secret) = &landscape.pull_secret {
            let why = "hosts that it has credentials for, comparison with KCP";
            lines.push(format!("get secrets {namespace}/{} # {why}", secret.name));
        }
        if let Some(trust) = &landscape.trust {
            let bundle = format!("{BUNDLES} {}", trust.name);
            lines.push(format!("get {bundle} # trusted certificates"));
        }
        lines
    }

    fn of_runtime(&self, runtime: &str) -> Vec<String> {
        let landscape = &self.scenario.landscape;
        let mut lines = self.of_both(SKR_NAMESPACE);
        if let Some(installation) = &self.installation {
            lines.extend(installation.requests());
        }
        lines.extend([
            format!("list {WEBHOOKS} # who gets new Pods"),
            format!("get deployments.v1.apps {SKR_NAMESPACE}/{WEBHOOK_DEPLOYMENT} # version of the webhook"),
        ]);
        let workloads = landscape.workloads.iter().enumerate();
        for (index, workload) in workloads.filter(|(_, it)| it.is_on(runtime)) {
            lines.extend(self.of_workload(&self.namespaces.of_workload(index), workload));
        }
        if self.options.only_contract {
            return lines;
        }
        lines.extend([
            format!("list pods {SKR_NAMESPACE}/ # Pods of the components"),
            format!("get pods/proxy {SKR_NAMESPACE}/{{pod}} # metrics of the components"),
        ]);
        let events = landscape.events.iter().enumerate();
        for (index, event) in events.filter(|(_, it)| it.is_on(runtime)) {
            lines.extend(self.of_event(&self.namespaces.of_event(index), event));
        }
        lines
    }

    fn of_event(&self, namespace: &str, event: &EventCheck) -> Vec<String> {
        let mut lines = of_namespace(namespace);
        if let Ok(manifest) = self.scenario.manifest(&event.manifest) {
            let (kind, name) = (kind(&manifest.object), name(&manifest.object));
            let sub = match event.change.subresource {
                Some(Subresource::Status) => "/status",
                None => "",
            };
            lines.extend([
                format!("create {kind} {namespace}/ # an object that changes"),
                format!("patch {kind}{sub} {namespace}/{name} # its change"),
            ]);
        }
        lines
    }

    fn of_workload(&self, namespace: &str, workload: &Workload) -> Vec<String> {
        let mut lines = of_namespace(namespace);
        lines.push(format!("list events {namespace}/ # why a Pod does not run"));
        if self.installation.is_some() || !self.options.only_contract {
            let why = "a dry run, whether the API server calls the webhook";
            lines.push(format!("create pods {namespace}/ # {why}"));
        }
        if workload.expect.inside != Inside::default() {
            // Depending on its version, an API server authorizes it as `get`, as `create` or as both.
            let why = "look into a container";
            let exec = |verb: &str| format!("{verb} pods/exec {namespace}/{{pod}} # {why}");
            lines.extend(["get", "create"].map(exec));
        }
        let Ok(manifest) = self.scenario.manifest(&workload.manifest) else {
            return lines;
        };
        let object = &manifest.object;
        for kind in manifest.others.iter().chain([object]).map(kind) {
            lines.push(format!("create {kind} {namespace}/ # the workload"));
        }
        if object["kind"] == "DaemonSet" {
            let place = format!("{namespace}/{}", name(object));
            lines.push(format!("get {} {place} # its number of Pods", kind(object)));
        }
        if object["kind"] == "CronJob" {
            let why = "a Job of the CronJob, now";
            lines.push(format!("create jobs.v1.batch {namespace}/ # {why}"));
        }
        lines
    }
}

fn of_namespace(namespace: &str) -> Vec<String> {
    let own = "a namespace of this run";
    vec![
        format!("create namespaces {namespace} # {own}"),
        format!("get namespaces {namespace} # {own}"),
        format!("delete namespaces {namespace} # {own}"),
        format!("get serviceaccounts {namespace}/default # wait until Pods can be created"),
        format!("list pods {namespace}/ # end Pods of this run"),
        format!("delete pods {namespace}/{{pod}} # end Pods of this run"),
    ]
}

const BOOTSTRAPPERS: &str = "runtimebootstrappers.v1alpha1.operator.kyma-project.io";
const RUNTIMES: &str = "runtimes.v1.infrastructuremanager.kyma-project.io";
const KYMAS: &str = "kymas.v1beta2.operator.kyma-project.io";
const WATCHERS: &str = "watchers.v1beta2.operator.kyma-project.io";
const BUNDLES: &str = "clustertrustbundles.v1beta1.certificates.k8s.io";
const WEBHOOKS: &str = "mutatingwebhookconfigurations.v1.admissionregistration.k8s.io";
