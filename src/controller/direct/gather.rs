//! Reads the objects of one runtime that a reconcile needs: one round trip for the objects that every reconcile
//! reads, a second one for all others.
//!
//! Invariants: the runtime is only read, and the controller's own permissions are reviewed. An object that must not be read is a
//! missing permission, and one that the API server fails to return is a failed read; neither is an absent object, and neither
//! concerns the other lane or another one of the three synchronized objects. Not in here: the decisions that follow from the
//! observation.

use std::collections::{BTreeMap, BTreeSet};

use api::kcp::OWNER_CONFIG_MAP;
use api::names::{
    DOCKER_CONFIG_TYPE, PULL_SECRET_COPY_LABEL, REPAIR_RECORD, WEBHOOK_CERTIFICATE, WEBHOOK_LEASE,
};
use component_base::telemetry::error_chain;
use futures::future::{join_all, try_join_all};
use policy::sync::ObjectNames;
use policy::sync::inventory::{candidates, is_managed_or_public};
use policy::sync::manifests::{Installation, Phase};
use policy::sync::observed::{Inaccessible, ObjectIdentity, Observed, ReadFailure, WebhookObjects};
use policy::sync::target::Target;
use policy::sync::{Lanes, SourceKind};
use serde_json::Value;

use super::rights;
use crate::clients::{CallError, Remote};
use crate::runtime_objects::{Read, cluster_uid, namespace_state, permission, read};

/// Versions in which ClusterTrustBundles may be served. The first version is the most likely, and is requested alone.
const TRUST_BUNDLE_VERSIONS: [&str; 3] = ["v1beta1", "v1", "v1alpha1"];

/// Number of Secrets in one page of a list, which bounds the memory.
const PAGE: u32 = 100;

/// Maximum number of copies of the pull Secret that are deleted in one reconcile.
const MAX_COPIES: usize = 10_000;

/// Maximum number of pages of a list of Secrets. Without a limit, a hostile API server could return pages without end.
const MAX_PAGES: usize = 200;

/// Reads the objects of one runtime.
pub(super) struct RuntimeReader<'a> {
    pub(super) remote: &'a Remote,
    pub(super) names: &'a ObjectNames,
    pub(super) installation: &'a Installation,
}

/// The result of a list of ClusterTrustBundles in a version that is served: the version, and the object if it exists; the missing
/// permission; or the error.
enum Listed {
    Found(String, Option<Value>),
    Forbidden(String),
    FailedRead(String),
}

/// The objects that a missing permission or a failed read concerns.
#[derive(Clone, Copy)]
enum Concern {
    /// The ownership ConfigMap, which all lanes share.
    Owner,
    Source(SourceKind),
    Webhook,
}

/// Missing permissions, and failed reads of single objects.
#[derive(Default)]
struct Obstacles {
    missing_permissions: Lanes<Vec<String>>,
    unread: Lanes<Vec<String>>,
    failed_reads: Lanes<Vec<String>>,
    inaccessible: BTreeMap<SourceKind, Inaccessible>,
}

impl Obstacles {
    /// Adds the missing permission for a read.
    fn forbid(&mut self, concern: Concern, permission: String) {
        match concern {
            Concern::Owner => {
                self.unread.configuration.push(permission.clone());
                self.unread.webhook.push(permission);
            }
            Concern::Source(kind) => {
                self.inaccessible.entry(kind).or_default().unread = Some(permission);
            }
            Concern::Webhook => self.unread.webhook.push(permission),
        }
    }

    /// Adds a failed read of a single object, which is not the ownership ConfigMap.
    fn fail(&mut self, concern: Concern, failed_read: String) {
        match concern {
            Concern::Source(kind) => {
                self.inaccessible.entry(kind).or_default().failed_read = Some(failed_read);
            }
            Concern::Owner | Concern::Webhook => self.failed_reads.webhook.push(failed_read),
        }
    }
}

impl RuntimeReader<'_> {
    /// Reads all objects except the installed objects. The Deployment is the only installed object that is read.
    pub(super) async fn essentials(&self) -> Result<Observed, CallError> {
        let (cluster, state, (objects, mut obstacles), listed, reviewed) = futures::try_join!(
            cluster_uid(self.remote),
            namespace_state(self.remote, &self.names.namespace),
            self.objects(),
            self.trust_bundle(),
            self.rules(),
        )?;
        let [marker, pull_secret, configuration, deployment] = objects;
        let mut bundle = None;
        let concern = Concern::Source(SourceKind::TrustBundle);
        match listed {
            Some(Listed::Found(version, object)) => bundle = Some((version, object)),
            Some(Listed::Forbidden(it)) => obstacles.forbid(concern, it),
            Some(Listed::FailedRead(it)) => obstacles.fail(concern, it),
            None => {}
        }
        match reviewed {
            Ok(rules) => self.add_missing(rules.as_ref(), &mut obstacles),
            Err(unreviewed) => obstacles.fail(Concern::Webhook, unreviewed),
        }
        let (trust_bundles, trust_bundle) = bundle.unzip();
        Ok(Observed {
            cluster,
            marker,
            namespace: state,
            trust_bundles,
            missing_permissions: obstacles.missing_permissions,
            unread: obstacles.unread,
            failed_reads: obstacles.failed_reads,
            inaccessible: obstacles.inaccessible,
            pull_secret,
            trust_bundle: trust_bundle.flatten(),
            configuration,
            deployment,
            webhook_objects: None,
            installed: None,
            earlier_sources: BTreeMap::new(),
            unread_inventory: BTreeMap::new(),
        })
    }

    /// Reads the owner marker, the pull Secret, the configuration ConfigMap and the Deployment. Returns the objects
    /// and what was not read. Without the marker, the identity of the cluster is not verified.
    async fn objects(&self) -> Result<([Option<Value>; 4], Obstacles), CallError> {
        let marker = Target::config_map(&self.names.namespace, OWNER_CONFIG_MAP);
        let source = |kind| (Concern::Source(kind), self.names.target(kind, None));
        let deployment = self.installation.deployment().cloned();
        let targets = [
            (Concern::Owner, Some(marker)),
            source(SourceKind::PullSecret),
            source(SourceKind::Configuration),
            (Concern::Webhook, deployment),
        ];
        let reads = targets.iter().map(|(concern, target)| async move {
            match (concern, target) {
                (Concern::Owner, Some(target)) => read(self.remote, target).await.map(Ok),
                (_, Some(target)) => self.read_one(target).await,
                (_, None) => Ok(Ok(Read::Found(None))),
            }
        });
        let mut obstacles = Obstacles::default();
        let mut objects = [const { None }; 4];
        let reads = try_join_all(reads).await?;
        for ((object, (concern, _)), read) in objects.iter_mut().zip(&targets).zip(reads) {
            match read {
                Ok(Read::Found(found)) => *object = found,
                Ok(Read::Forbidden(permission)) => obstacles.forbid(*concern, permission),
                Err(failed_read) => obstacles.fail(*concern, failed_read),
            }
        }
        Ok((objects, obstacles))
    }

    /// Reads an object. The inner error is one that concerns this object only, so that other objects do not wait for it.
    async fn read_one(&self, target: &Target) -> Result<Result<Read, String>, CallError> {
        match read(self.remote, target).await {
            Err(error) if error.concerns_one_object() => Ok(Err(failed_read(target, &error))),
            found => found.map(Ok),
        }
    }

    /// Adds the sources under earlier names that are to be deleted. An object that cannot be read stays in the inventory:
    /// clients of the runtime can add objects to it.
    pub(super) async fn earlier_sources(
        &self,
        targets: BTreeSet<Target>,
        observed: &mut Observed,
    ) -> Result<(), CallError> {
        for target in targets {
            match read(self.remote, &target).await {
                Ok(Read::Found(Some(found))) => {
                    observed.earlier_sources.insert(target, found);
                }
                Err(error) if error.concerns_all_calls() => return Err(error),
                Ok(Read::Found(None) | Read::Forbidden(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Adds the installed objects except the Deployment, and the objects of the inventory that the installation no
    /// longer contains.
    pub(super) async fn installed(&self, observed: &mut Observed) -> Result<(), CallError> {
        let others = candidates(self.installation, self.names, observed);
        let manifests = self.installation.manifests().iter();
        let manifests = manifests.filter(|it| it.phase != Phase::Deployment);
        let reads = manifests.map(|it| async move { Ok((it, self.read_one(&it.target).await?)) });
        let mut installed = BTreeMap::new();
        for (manifest, read) in try_join_all(reads).await? {
            let target = manifest.target.clone();
            match read {
                Ok(Read::Found(found)) => installed.extend(found.map(|it| (target, it))),
                Ok(Read::Forbidden(permission)) if self.names.is_additional(&manifest.target) => {
                    let cause = ReadFailure::Forbidden(permission);
                    observed.unread_inventory.insert(target, cause);
                }
                Err(failed_read) if self.names.is_additional(&manifest.target) => {
                    let cause = ReadFailure::Failed(failed_read);
                    observed.unread_inventory.insert(target, cause);
                }
                Ok(Read::Forbidden(permission)) => observed.unread.webhook.push(permission),
                Err(failed_read) => observed.failed_reads.webhook.push(failed_read),
            }
        }
        // Clients of the runtime can add large objects to the inventory. Therefore objects are read sequentially, and
        // objects of other clients are dropped.
        for target in others {
            let cause = match self.read_one(&target).await? {
                Ok(Read::Found(found)) => {
                    let ours = found.filter(|it| is_managed_or_public(&target, it));
                    installed.extend(ours.map(|it| (target, it)));
                    continue;
                }
                Ok(Read::Forbidden(permission)) => ReadFailure::Forbidden(permission),
                Err(failed_read) => ReadFailure::Failed(failed_read),
            };
            observed.unread_inventory.insert(target, cause);
        }
        observed.installed = Some(installed);
        Ok(())
    }

    /// Adds the objects that the webhook created, and missing permissions to delete them. A forbidden list is a missing
    /// permission, so that a deletion does not start if it cannot be completed.
    pub(super) async fn created_by_webhook(
        &self,
        observed: &mut Observed,
    ) -> Result<(), CallError> {
        let namespace = &self.names.namespace;
        let mut made = WebhookObjects::default();
        for target in [
            Target::secret(namespace, WEBHOOK_CERTIFICATE),
            Target::lease(namespace, WEBHOOK_LEASE),
            Target::secret(namespace, REPAIR_RECORD),
        ] {
            match read(self.remote, &target).await? {
                Read::Found(found) => {
                    let found = found.map(|it| ObjectIdentity::of(target, &it));
                    made.others.extend(found);
                }
                Read::Forbidden(permission) => observed.unread.webhook.push(permission),
            }
        }
        match self.copies().await? {
            Some(copies) => made.copies = copies,
            None => observed.unread.webhook.push(in_all_namespaces("list")),
        }
        if !made.copies.is_empty() && !self.may_delete_copies().await? {
            observed.unread.webhook.push(in_all_namespaces("delete"));
        }
        observed.webhook_objects = Some(made);
        Ok(())
    }

    /// Lists the copies of the pull Secret in all namespaces, including copies of the public webhook. Returns at most
    /// [`MAX_COPIES`]; the next reconcile deletes the others. `None` if the list is forbidden.
    async fn copies(&self) -> Result<Option<Vec<ObjectIdentity>>, CallError> {
        let (label, kind) = (escaped(PULL_SECRET_COPY_LABEL), escaped(DOCKER_CONFIG_TYPE));
        let labelled = format!("labelSelector={label}%3Dtrue&fieldSelector=type%3D{kind}");
        let Some(mut copies) = self.secrets(&labelled, ObjectIdentity::of_copy).await? else {
            return Ok(None);
        };
        if let Some(source) = self.names.target(SourceKind::PullSecret, None) {
            let name = escaped(source.name());
            let named = format!("fieldSelector=type%3D{kind}%2Cmetadata.name%3D{name}");
            let namespace = &self.names.namespace;
            let public = |it: &Value| ObjectIdentity::of_public_copy(it, namespace);
            let mut others = self.secrets(&named, public).await?.unwrap_or_default();
            let known: BTreeSet<&Target> = copies.iter().map(|it| &it.target).collect();
            others.retain(|it| !known.contains(&it.target));
            copies.append(&mut others);
        }
        Ok(Some(copies))
    }

    /// Lists the Secrets that match the selectors and for which `select` returns an identity. `None` if the list is forbidden.
    async fn secrets(
        &self,
        selectors: &str,
        select: impl Fn(&Value) -> Option<ObjectIdentity>,
    ) -> Result<Option<Vec<ObjectIdentity>>, CallError> {
        let mut secrets = Vec::new();
        let mut next = String::new();
        for _ in 0..MAX_PAGES {
            let query = format!("/api/v1/secrets?{selectors}&limit={PAGE}{next}");
            let page = match self.remote.list_metadata(&query).await {
                Err(error) if error.is_forbidden() => return Ok(None),
                page => page?,
            };
            let items = page.get("items").and_then(Value::as_array);
            secrets.extend(items.into_iter().flatten().filter_map(&select));
            secrets.truncate(MAX_COPIES);
            if secrets.len() == MAX_COPIES {
                break;
            }
            match text(&page, "/metadata/continue").filter(|it| !it.is_empty()) {
                Some(token) => next = format!("&continue={}", escaped(&token)),
                None => break,
            }
        }
        Ok(Some(secrets))
    }

    /// Returns whether Secrets may be deleted in all namespaces. If the review is rejected, the result of the
    /// deletions shows the missing permission.
    async fn may_delete_copies(&self) -> Result<bool, CallError> {
        let review = rights::access_review("delete", "secrets");
        match self.remote.post(rights::ACCESS_REVIEWS, &review).await {
            Err(CallError::Refused { .. }) => Ok(true),
            response => Ok(response?.pointer("/status/allowed") != Some(&Value::Bool(false))),
        }
    }

    /// Reads the ClusterTrustBundle in the best served version; `None` if none is served. The request is a list, because a list
    /// distinguishes an absent object from an absent API.
    async fn trust_bundle(&self) -> Result<Option<Listed>, CallError> {
        let Some(name) = &self.names.trust_bundle else {
            return Ok(None);
        };
        let (first, others) = TRUST_BUNDLE_VERSIONS.split_at(1);
        for versions in [first, others] {
            let lists = versions
                .iter()
                .map(|version| self.trust_bundle_in(version, name));
            for response in join_all(lists).await {
                if let Some(listed) = response? {
                    return Ok(Some(listed));
                }
            }
        }
        Ok(None)
    }

    /// Lists the ClusterTrustBundle in one version; `None` if the version is not served.
    async fn trust_bundle_in(
        &self,
        version: &str,
        name: &str,
    ) -> Result<Option<Listed>, CallError> {
        let target = Target::trust_bundle(version, name);
        let (collection, name) = (target.collection(), escaped(name));
        let query = format!("{collection}?fieldSelector=metadata.name%3D{name}");
        match self.remote.list(&query).await {
            Ok(mut list) => {
                let first = list.pointer_mut("/items/0").map(Value::take);
                Ok(Some(Listed::Found(version.to_owned(), first)))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) if error.is_forbidden() => {
                Ok(Some(Listed::Forbidden(permission("list", &target))))
            }
            Err(error) if error.concerns_one_object() => {
                Ok(Some(Listed::FailedRead(failed_read(&target, &error))))
            }
            Err(error) => Err(error),
        }
    }

    /// Reviews the permissions; `None` if the review is rejected: then the results of the writes show missing permissions. The
    /// inner error is that of a review that fails alone. The webhook does not rely on the writes, because a rejected write
    /// counts as a failure of its rollout.
    async fn rules(&self) -> Result<Result<Option<rights::Rules>, String>, CallError> {
        let review = rights::rules_review(&self.names.namespace);
        match self.remote.post(rights::RULES_REVIEWS, &review).await {
            Err(CallError::Refused { .. }) => Ok(Ok(None)),
            Err(error) if error.concerns_one_object() => {
                let failed_read = format!("review of permissions: {}", error_chain(&error));
                Ok(Err(failed_read))
            }
            // Parsed here, because the response is large and the other requests may still be pending.
            response => response.map(|it| Ok(Some(rights::Rules::read(it)))),
        }
    }

    /// Adds the permissions that are missing according to a review.
    fn add_missing(&self, rules: Option<&rights::Rules>, obstacles: &mut Obstacles) {
        let Some(rules) = rules else {
            return;
        };
        let marker = Target::config_map(&self.names.namespace, OWNER_CONFIG_MAP);
        let manifests = self.installation.manifests().iter().map(|it| &it.target);
        obstacles.missing_permissions = Lanes {
            configuration: rules.missing([&marker]),
            webhook: rules.missing([&marker].into_iter().chain(manifests)),
        };
        for kind in SourceKind::ALL {
            let target = self.names.target(kind, Some(TRUST_BUNDLE_VERSIONS[0]));
            let missing = rules.missing(&target);
            if !missing.is_empty() {
                let inaccessible = obstacles.inaccessible.entry(kind).or_default();
                inaccessible.missing_permissions = missing;
            }
        }
    }
}

/// Returns the text of a read that failed.
fn failed_read(target: &Target, error: &CallError) -> String {
    format!(
        "{} {}: {}",
        target.kind(),
        target.name(),
        error_chain(error)
    )
}

/// Returns the name of a permission for Secrets in all namespaces.
fn in_all_namespaces(verb: &str) -> String {
    format!("{verb} secrets in all namespaces")
}

/// Escapes a query value. Names of bundles may contain colons, labels and types may contain slashes. Other special
/// characters cannot occur.
fn escaped(name: &str) -> String {
    name.replace('%', "%25")
        .replace(':', "%3A")
        .replace('/', "%2F")
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer)?.as_str().map(str::to_owned)
}
