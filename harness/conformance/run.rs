//! One run: what it may send is decided first, then identities and rights are checked, then the clusters; at the end everything
//! that was made is removed, also after an error or an interruption.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::kcp::{KCP_NAMESPACE, WEBHOOK_DEPLOYMENT};
use api::names;
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use testkit::locked;
use testkit::until::until;
use tokio::time::Instant;

use crate::cluster::{Cluster, Endpoint};
use crate::install::Installation;
use crate::model::{Landscape, Mode, Namespace, Subresource};
use crate::report::{Check, ClusterReport, Family, Moment, Outcome, PodReport, Report, seconds};
use crate::requests::{Allowed, OWN_NAMESPACES, Verb};
use crate::runtime::{version, webhook_deployment};
use crate::scenario::{Scenario, template_path};
use crate::workloads::job_of;
use crate::{control_plane, runtime};

/// What a run does beside what the scenario says.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Leave out what reads metrics or the version of this project's components, so that any implementation can be checked.
    pub only_contract: bool,
    /// Longest time that something may take to come about on a cluster.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only_contract: false,
            patience: Duration::from_mins(1),
        }
    }
}

/// A run that has not begun.
pub struct Run<'a> {
    scenario: &'a Scenario,
    options: Options,
    kcp: Option<Endpoint>,
    runtimes: Vec<Endpoint>,
    namespaces: Namespaces,
    installation: Option<Installation>,
}

/// Names of the namespaces that a run creates.
#[derive(Debug, Clone)]
pub(crate) struct Namespaces(String);

impl Namespaces {
    pub(crate) fn of_workload(&self, index: usize) -> String {
        format!("{OWN_NAMESPACES}{}-{index}", self.0)
    }

    pub(crate) fn of_event(&self, index: usize) -> String {
        format!("{OWN_NAMESPACES}{}-event-{index}", self.0)
    }
}

/// What the checks share.
pub(crate) struct Context<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) options: Options,
    pub(crate) namespaces: Namespaces,
    /// Whether the webhook was installed by this run, so that the API server may not reach it yet.
    pub(crate) is_new: bool,
    begin: Instant,
    said: &'a (dyn Fn(&Check) + Sync),
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    checks: Vec<Check>,
    pods: Vec<PodReport>,
    timeline: Vec<Moment>,
    /// Clusters and the namespaces that may exist there.
    made: Vec<(Cluster, String)>,
    /// Clusters and the paths of objects of an installation that may exist there.
    installed: Vec<(Cluster, String)>,
}

impl<'a> Run<'a> {
    /// A run over clusters: `kcp`, and the runtimes in the order of the scenario.
    ///
    /// # Errors
    /// The scenario has another number of runtimes.
    pub fn new(
        scenario: &'a Scenario,
        kcp: Option<Endpoint>,
        runtimes: Vec<Endpoint>,
        options: Options,
    ) -> Result<Self> {
        let expected: Vec<&str> = scenario.runtimes().collect();
        ensure!(
            expected.len() == runtimes.len(),
            "{}: {} kubeconfigs of runtimes, expected one for each of {expected:?}",
            scenario.file.display(),
            runtimes.len()
        );
        let id = format!("{:08x}", fastrand::u32(..));
        Ok(Self {
            scenario,
            options,
            kcp,
            runtimes,
            namespaces: Namespaces(id),
            installation: None,
        })
    }

    /// The same, but the runtimes get this installation for the time of the run.
    #[must_use]
    pub fn with_installation(self, installation: Installation) -> Self {
        Self {
            installation: Some(installation),
            ..self
        }
    }

    /// Everything that the run may send, by cluster. `{…}` stands for a name that is not known before.
    pub fn requests(&self) -> Vec<(String, Vec<Allowed>)> {
        let runtimes = self
            .runtimes
            .iter()
            .map(|it| (it.name.clone(), self.of_runtime(&it.name)));
        let kcp = self.kcp.iter().map(|it| (it.name.clone(), self.of_kcp()));
        kcp.chain(runtimes)
            .map(|(name, allowed)| (name, allowed.into_iter().collect()))
            .collect()
    }

    /// Checks the clusters. `interrupt` ends the run early; what it made is removed then, too.
    ///
    /// # Errors
    /// A cluster cannot be reached, is there twice, does not give the rights that are needed, or answered with an error; the run
    /// was interrupted; or something that it made could not be removed.
    pub async fn run(
        self,
        interrupt: impl Future<Output = ()>,
        said: &(dyn Fn(&Check) + Sync),
    ) -> Result<Report> {
        let context = Context {
            scenario: self.scenario,
            options: self.options,
            namespaces: self.namespaces.clone(),
            is_new: self.installation.is_some(),
            begin: Instant::now(),
            said,
            found: Mutex::default(),
        };
        let started = Timestamp::now().strftime("%FT%TZ").to_string();
        let checked = tokio::select! {
            checked = self.check(&context) => checked,
            () = interrupt => Err(anyhow::anyhow!("interrupted")),
        };
        let removed = context.remove_namespaces().await;
        let removed = match (removed, context.uninstall().await) {
            (Err(namespaces), Err(others)) => Err(namespaces.context(format!("{others:#}"))),
            (namespaces, others) => namespaces.and(others),
        };
        let clusters = match (checked, removed) {
            (Ok(clusters), Ok(())) => clusters,
            (Err(error), Ok(())) => return Err(error),
            (Ok(_), Err(left)) => return Err(left),
            (Err(error), Err(left)) => return Err(error.context(format!("{left:#}"))),
        };
        let Found {
            checks,
            pods,
            mut timeline,
            ..
        } = std::mem::take(&mut *locked(&context.found));
        timeline.sort();
        Ok(Report {
            scenario: self.scenario.landscape.name.clone(),
            description: self.scenario.landscape.description.clone(),
            started,
            seconds: seconds(context.begin.elapsed()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clusters,
            checks,
            pods,
            timeline,
        })
    }

    async fn check(&self, context: &Context<'_>) -> Result<Vec<ClusterReport>> {
        let kcp = self.kcp.iter().map(|it| Cluster::new(it, self.of_kcp()));
        let runtimes = self
            .runtimes
            .iter()
            .map(|it| Cluster::new(it, self.of_runtime(&it.name)));
        let clusters: Vec<Cluster> = kcp.chain(runtimes).collect();
        self.rights(&clusters).await?;
        let identities = identities(&clusters).await?;
        let first = usize::from(self.kcp.is_some());
        if let Some(installation) = &self.installation {
            for cluster in clusters.iter().skip(first) {
                installation.is_absent(cluster).await?;
            }
            let installed = clusters
                .iter()
                .skip(first)
                .map(|it| installation.install(context, it));
            join_all(installed)
                .await
                .into_iter()
                .collect::<Result<()>>()?;
        }
        let reports = join_all(clusters.iter().map(about)).await;
        let reports = reports.into_iter().collect::<Result<Vec<_>>>()?;
        let of_runtimes: Vec<(Cluster, String)> = clusters
            .iter()
            .cloned()
            .zip(identities)
            .skip(first)
            .collect();
        let checks = of_runtimes
            .iter()
            .map(|(cluster, _)| runtime::check(context, cluster));
        let checks = async { join_all(checks).await.into_iter().collect::<Result<()>>() };
        let of_kcp = async {
            match clusters.first().filter(|_| self.kcp.is_some()) {
                Some(kcp) => control_plane::check(context, kcp, &of_runtimes).await,
                None => Ok(()),
            }
        };
        let (checks, of_kcp) = tokio::join!(checks, of_kcp);
        checks.and(of_kcp)?;
        if self.kcp.is_none() && self.scenario.landscape.control_plane.is_some() {
            let reason = "the option --kcp is missing".to_owned();
            if let Some(cluster) = clusters.first() {
                context.record(
                    cluster,
                    "The runtimes are as KCP has them",
                    Family::Contract,
                    Outcome::NotRun { reason },
                );
            }
        }
        Ok(reports)
    }

    /// Asks each cluster for every right before anything is made.
    async fn rights(&self, clusters: &[Cluster]) -> Result<()> {
        let requests = self.requests();
        let asked = clusters
            .iter()
            .zip(&requests)
            .map(|(cluster, (_, allowed))| async move {
                let mut missing = BTreeSet::new();
                for allowed in allowed {
                    if !cluster.is_allowed(allowed).await? {
                        missing.insert(allowed.shown_right());
                    }
                }
                anyhow::Ok((cluster, missing))
            });
        let (mut text, mut errors) = (String::new(), Vec::new());
        for answer in join_all(asked).await {
            match answer {
                Ok((cluster, missing)) => {
                    for right in missing {
                        let _ = write!(text, "\n  {}: {right}", cluster.name);
                    }
                }
                Err(error) => errors.push(format!("{error:#}")),
            }
        }
        ensure!(errors.is_empty(), "{}", errors.join("\n"));
        ensure!(
            text.is_empty(),
            "the users of the kubeconfigs lack rights; nothing was changed. The names of namespaces of a run are new each time, so rights \
             in them can be given for all namespaces only:{text}"
        );
        Ok(())
    }

    fn of_kcp(&self) -> BTreeSet<Allowed> {
        let mut allowed = self.of_both(KCP_NAMESPACE);
        let [bootstrappers, runtimes, kymas, watchers] = [
            "runtimebootstrappers.v1alpha1.operator.kyma-project.io",
            "runtimes.v1.infrastructuremanager.kyma-project.io",
            "kymas.v1beta2.operator.kyma-project.io",
            "watchers.v1beta2.operator.kyma-project.io",
        ];
        let landscape = &self.scenario.landscape;
        let is_direct = mode(landscape) == Some(Mode::Direct);
        let all = if is_direct { bootstrappers } else { runtimes };
        let why = "which runtimes are those of the run";
        allowed.insert(Allowed::new(Verb::List, all, why).within(KCP_NAMESPACE));
        for kind in [runtimes, kymas] {
            let read = Allowed::new(Verb::Get, kind, "timeline").within(KCP_NAMESPACE);
            allowed.insert(read.named("{runtime}"));
        }
        for watcher in &landscape.watchers {
            let read = Allowed::new(Verb::Get, watchers, "what is reported");
            allowed.insert(read.within(&watcher.namespace).named(&watcher.name));
        }
        allowed
    }

    /// Identity, rights, and the three objects of the configuration.
    fn of_both(&self, namespace: &str) -> BTreeSet<Allowed> {
        let landscape = &self.scenario.landscape;
        let mut allowed = BTreeSet::from([
            Allowed::new(Verb::Get, VERSION, "version of the API server"),
            Allowed::new(Verb::Get, "namespaces", "identity of the cluster").named("kube-system"),
            Allowed::new(
                Verb::Create,
                "selfsubjectaccessreviews.v1.authorization.k8s.io",
                "ask for rights",
            ),
            Allowed::new(Verb::Get, "configmaps", "the configuration document")
                .within(namespace)
                .named(names::CONFIG_MAP),
        ]);
        if let Some(secret) = &landscape.pull_secret {
            let why = "hosts that it has credentials for, hash of its content";
            allowed.insert(
                Allowed::new(Verb::Get, "secrets", why)
                    .within(namespace)
                    .named(&secret.name),
            );
        }
        if let Some(trust) = &landscape.trust {
            let kind = "clustertrustbundles.v1beta1.certificates.k8s.io";
            allowed
                .insert(Allowed::new(Verb::Get, kind, "trusted certificates").named(&trust.name));
        }
        allowed
    }

    fn of_runtime(&self, runtime: &str) -> BTreeSet<Allowed> {
        let landscape = &self.scenario.landscape;
        let mut allowed = self.of_both(names::SKR_NAMESPACE);
        if let Some(installation) = &self.installation {
            allowed.extend(installation.allowed());
        }
        let kind = "mutatingwebhookconfigurations.v1.admissionregistration.k8s.io";
        allowed.insert(Allowed::new(Verb::List, kind, "who gets new Pods"));
        let deployment = Allowed::new(Verb::Get, "deployments.v1.apps", "version of the webhook");
        allowed.insert(
            deployment
                .within(names::SKR_NAMESPACE)
                .named(WEBHOOK_DEPLOYMENT),
        );
        let workloads = landscape
            .workloads
            .iter()
            .enumerate()
            .filter(|(_, it)| it.is_on(runtime));
        for (index, workload) in workloads {
            let namespace = self.namespaces.of_workload(index);
            self.of_workload(&mut allowed, &namespace, &workload.manifest);
            if workload.expect.inside != crate::model::Inside::default() {
                // An API server checks it as `get`, as `create` or as both, by its version.
                for verb in [Verb::Get, Verb::Create] {
                    let exec = Allowed::new(verb, "pods", "look into a container");
                    allowed.insert(exec.within(&namespace).named("{pod}").sub("exec"));
                }
            }
        }
        if self.options.only_contract {
            return allowed;
        }
        allowed.insert(
            Allowed::new(Verb::List, "pods", "Pods of the components").within(names::SKR_NAMESPACE),
        );
        let metrics = Allowed::new(Verb::Get, "pods", "metrics of the components");
        allowed.insert(
            metrics
                .within(names::SKR_NAMESPACE)
                .named("{pod}")
                .sub("proxy"),
        );
        self.of_events(&mut allowed, runtime);
        allowed
    }

    fn of_events(&self, allowed: &mut BTreeSet<Allowed>, runtime: &str) {
        let events = self.scenario.landscape.events.iter().enumerate();
        for (index, event) in events.filter(|(_, it)| it.is_on(runtime)) {
            let namespace = self.namespaces.of_event(index);
            of_namespace(allowed, &namespace);
            let Ok(manifest) = self.scenario.manifest(&event.manifest) else {
                continue;
            };
            let object = &manifest.object;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let create = Allowed::of(Verb::Create, object, "an object that changes");
            allowed.insert(create.within(&namespace));
            let change = Allowed::of(Verb::Patch, object, "its change");
            let change = change.within(&namespace).named(name);
            allowed.insert(match event.change.subresource {
                Some(Subresource::Status) => change.sub("status"),
                None => change,
            });
        }
    }

    fn of_workload(&self, allowed: &mut BTreeSet<Allowed>, namespace: &str, manifest: &str) {
        of_namespace(allowed, namespace);
        if self.installation.is_some() {
            let why = "a dry run, until the API server reaches the webhook";
            allowed.insert(Allowed::new(Verb::Create, "pods", why).within(namespace));
        }
        let why = "why a Pod does not run";
        allowed.insert(Allowed::new(Verb::List, "events", why).within(namespace));
        let Ok(manifest) = self.scenario.manifest(manifest) else {
            return;
        };
        let object = &manifest.object;
        for object in manifest.others.iter().chain([object]) {
            allowed.insert(Allowed::of(Verb::Create, object, "the workload").within(namespace));
        }
        if object["kind"] == "DaemonSet" {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            allowed.insert(
                Allowed::of(Verb::Get, object, "its number of Pods")
                    .within(namespace)
                    .named(name),
            );
        }
        if object["kind"] == "CronJob" {
            allowed.insert(
                Allowed::of(Verb::Create, &job_of(object), "a Job of the CronJob, now")
                    .within(namespace),
            );
        }
        debug_assert!(
            template_path(object).is_some(),
            "checked when the file was read"
        );
    }
}

fn of_namespace(allowed: &mut BTreeSet<Allowed>, namespace: &str) {
    let own = "a namespace of this run";
    for verb in [Verb::Create, Verb::Get, Verb::Delete] {
        allowed.insert(Allowed::new(verb, "namespaces", own).named(namespace));
    }
    let account = Allowed::new(
        Verb::Get,
        "serviceaccounts",
        "wait until Pods can be created",
    );
    allowed.insert(account.within(namespace).named("default"));
    let end = "end Pods of this run";
    allowed.insert(Allowed::new(Verb::List, "pods", end).within(namespace));
    allowed.insert(
        Allowed::new(Verb::Delete, "pods", end)
            .within(namespace)
            .named("{pod}"),
    );
}

fn mode(landscape: &Landscape) -> Option<Mode> {
    landscape.control_plane.as_ref().map(|it| it.mode)
}

impl Context<'_> {
    /// How the controller of the landscape works, if the scenario says so.
    pub(crate) fn mode(&self) -> Option<Mode> {
        mode(&self.scenario.landscape)
    }

    /// Takes the result of a check.
    pub(crate) fn record(&self, cluster: &Cluster, title: &str, family: Family, outcome: Outcome) {
        let check = Check {
            cluster: cluster.name.clone(),
            title: title.to_owned(),
            family,
            outcome,
            at: seconds(self.begin.elapsed()),
        };
        (self.said)(&check);
        locked(&self.found).checks.push(check);
    }

    pub(crate) fn keep_pod(&self, pod: PodReport) {
        locked(&self.found).pods.push(pod);
    }

    pub(crate) fn keep_moments(&self, moments: Vec<Moment>) {
        locked(&self.found).timeline.extend(moments);
    }

    /// Notes an object of an installation, before it is created.
    pub(crate) fn installed(&self, cluster: &Cluster, path: String) {
        locked(&self.found).installed.push((cluster.clone(), path));
    }

    /// Removes the installation from every cluster that has some of it.
    async fn uninstall(&self) -> Result<()> {
        let installed = std::mem::take(&mut locked(&self.found).installed);
        let mut by_cluster: BTreeMap<&str, (&Cluster, Vec<String>)> = BTreeMap::new();
        for (cluster, path) in &installed {
            by_cluster
                .entry(&cluster.name)
                .or_insert_with(|| (cluster, Vec::new()))
                .1
                .push(path.clone());
        }
        let removed = by_cluster
            .values()
            .map(|(cluster, paths)| Installation::uninstall(self, cluster, paths));
        let removed = join_all(removed).await.into_iter().collect::<Result<()>>();
        removed.context("the installation could not be removed")
    }

    /// Creates a namespace of the run, and waits until Pods can be created there.
    pub(crate) async fn create_namespace(
        &self,
        cluster: &Cluster,
        name: &str,
        extra: &Namespace,
    ) -> Result<()> {
        let mut labels: BTreeMap<&str, &str> = extra
            .labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        labels.insert(LABEL, &self.namespaces.0);
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": labels, "annotations": extra.annotations },
        });
        // Before it is sent: an answer that is lost may have created it.
        locked(&self.found)
            .made
            .push((cluster.clone(), name.to_owned()));
        cluster.create("/api/v1/namespaces", &namespace).await?;
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        let exists = || async { cluster.find(&path).await?.context("not yet") };
        until(
            "the namespace has its ServiceAccount",
            self.options.patience,
            exists,
        )
        .await?;
        Ok(())
    }

    /// Removes the namespaces of the run, and waits until they are gone.
    async fn remove_namespaces(&self) -> Result<()> {
        let made = std::mem::take(&mut locked(&self.found).made);
        let removed = made.iter().map(|(cluster, name)| async move {
            let path = format!("/api/v1/namespaces/{name}");
            cluster.delete(&path, &json!({})).await?;
            // Without it each Pod may take half a minute.
            for pod in cluster.list(&format!("{path}/pods")).await? {
                let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
                cluster
                    .delete(
                        &format!("{path}/pods/{pod}"),
                        &json!({ "gracePeriodSeconds": 1 }),
                    )
                    .await?;
            }
            let is_gone = || async {
                ensure!(cluster.find(&path).await?.is_none(), "it still exists");
                Ok(())
            };
            until("the namespace is gone", REMOVAL, is_gone).await?;
            anyhow::Ok(())
        });
        let mut left = String::new();
        for ((cluster, name), removed) in made.iter().zip(join_all(removed).await) {
            if let Err(error) = removed {
                let _ = write!(
                    left,
                    "\n  {} delete namespace {name}  # {error:#}",
                    cluster.kubectl
                );
            }
        }
        if !left.is_empty() {
            bail!("not everything that this run made could be removed:{left}");
        }
        Ok(())
    }
}

/// The UID of each cluster; the same cluster twice is an error.
async fn identities(clusters: &[Cluster]) -> Result<Vec<String>> {
    let asked = clusters.iter().map(|cluster| async move {
        let namespace = cluster.find("/api/v1/namespaces/kube-system").await?;
        let uid = namespace
            .as_ref()
            .and_then(|it| it["metadata"]["uid"].as_str());
        let uid =
            uid.with_context(|| format!("{}: the Namespace kube-system has no UID", cluster.name))?;
        anyhow::Ok(uid.to_owned())
    });
    let mut found: BTreeMap<String, &str> = BTreeMap::new();
    let (mut uids, mut errors) = (Vec::new(), Vec::new());
    for (cluster, uid) in clusters.iter().zip(join_all(asked).await) {
        match uid {
            Err(error) => errors.push(format!("{error:#}")),
            Ok(uid) => {
                if let Some(other) = found.insert(uid.clone(), &cluster.name) {
                    errors.push(format!(
                        "{other} and {} are the same cluster (UID {uid}), expected different ones",
                        cluster.name
                    ));
                }
                uids.push(uid);
            }
        }
    }
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(uids)
}

async fn about(cluster: &Cluster) -> Result<ClusterReport> {
    let kubernetes = cluster.find(VERSION).await?.unwrap_or_default();
    let deployment = if cluster.name == KCP {
        None
    } else {
        cluster.find(&webhook_deployment()).await?
    };
    Ok(ClusterReport {
        name: cluster.name.clone(),
        kubernetes: kubernetes["gitVersion"]
            .as_str()
            .unwrap_or("unknown")
            .to_owned(),
        webhook: version(deployment.as_ref()),
    })
}

/// Name of the control plane in reports.
pub const KCP: &str = "kcp";
/// Where an API server says its version.
const VERSION: &str = "/version";
/// Label of every namespace of a run; its value is the run's ID. `kubectl delete namespaces -l LABEL` removes what a killed
/// run left.
pub(crate) const LABEL: &str = "rt-bootstrapper.kyma-project.io/conformance-run";
/// Longest time that the removal of a namespace may take.
const REMOVAL: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
