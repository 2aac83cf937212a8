//! Reads the objects of one runtime that a reconcile needs: one round trip for the objects that every reconcile
//! reads, a second one for all others.
//!
//! Invariants: the runtime is only read, and the controller's own permissions are reviewed. An object that must not be read is a
//! missing permission, and one that the API server fails to return is a failed read; neither is an absent object, and neither
//! concerns the other lane. Not in here: the decisions that follow from the observation.

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
use policy::sync::observed::{ObjectIdentity, Observed, WebhookObjects};
use policy::sync::target::Target;
use policy::sync::{Lane, Lanes, SourceKind};
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

/// What was not read: missing permissions, and failed reads of single objects.
#[derive(Default)]
struct Unread {
    permissions: Lanes<Vec<String>>,
    failed_reads: Lanes<Vec<String>>,
}

impl RuntimeReader<'_> {
    /// Reads all objects except the installed objects. The Deployment is the only installed object that is read.
    pub(super) async fn essentials(&self) -> Result<Observed, CallError> {
        let (cluster, state, (objects, mut unread), listed, reviewed) = futures::try_join!(
            cluster_uid(self.remote),
            namespace_state(self.remote, &self.names.namespace),
            self.objects(),
            self.trust_bundle(),
            self.missing(),
        )?;
        let [marker, pull_secret, configuration, deployment] = objects;
        let mut bundle = None;
        match listed {
            Some(Listed::Found(version, object)) => bundle = Some((version, object)),
            Some(Listed::Forbidden(it)) => unread.permissions.configuration.push(it),
            Some(Listed::FailedRead(it)) => unread.failed_reads.configuration.push(it),
            None => {}
        }
        let (missing_permissions, unreviewed) = reviewed;
        unread.failed_reads.webhook.extend(unreviewed);
        let (trust_bundles, trust_bundle) = bundle.unzip();
        Ok(Observed {
            cluster,
            marker,
            namespace: state,
            trust_bundles,
            missing_permissions,
            unread: unread.permissions,
            failed_reads: unread.failed_reads,
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
    async fn objects(&self) -> Result<([Option<Value>; 4], Unread), CallError> {
        let marker = Target::config_map(&self.names.namespace, OWNER_CONFIG_MAP);
        let source = |kind| self.names.target(kind, None);
        let targets: [(&[Lane], Option<Target>); 4] = [
            (&Lane::ALL, Some(marker)),
            (&[Lane::Configuration], source(SourceKind::PullSecret)),
            (&[Lane::Configuration], source(SourceKind::Configuration)),
            (&[Lane::Webhook], self.installation.deployment().cloned()),
        ];
        let reads = targets.iter().map(|(lanes, target)| async move {
            match target {
                Some(target) if lanes.len() > 1 => read(self.remote, target).await.map(Ok),
                Some(target) => self.read_one(target).await,
                None => Ok(Ok(Read::Found(None))),
            }
        });
        let mut unread = Unread::default();
        let mut objects = [const { None }; 4];
        let reads = try_join_all(reads).await?;
        for ((object, (lanes, _)), read) in objects.iter_mut().zip(&targets).zip(reads) {
            let (texts, text) = match read {
                Ok(Read::Found(found)) => {
                    *object = found;
                    continue;
                }
                Ok(Read::Forbidden(permission)) => (&mut unread.permissions, permission),
                Err(failed_read) => (&mut unread.failed_reads, failed_read),
            };
            for lane in *lanes {
                texts.get_mut(*lane).push(text.clone());
            }
        }
        Ok((objects, unread))
    }

    /// Reads an object. The inner error is one that concerns this object only: it blocks the lane of the object, so that the other
    /// lane does not wait for it.
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
                    observed.unread_inventory.insert(target, permission);
                }
                Ok(Read::Forbidden(permission)) => observed.unread.webhook.push(permission),
                Err(failed_read) => observed.failed_reads.webhook.push(failed_read),
            }
        }
        // Clients of the runtime can add large objects to the inventory. Therefore objects are read sequentially, and
        // objects of other clients are dropped.
        for target in others {
            match read(self.remote, &target).await? {
                Read::Found(found) => {
                    let ours = found.filter(|it| is_managed_or_public(&target, it));
                    installed.extend(ours.map(|it| (target, it)));
                }
                Read::Forbidden(permission) => {
                    observed.unread_inventory.insert(target, permission);
                }
            }
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

    /// Returns the missing permissions, and the error of a review that fails alone. If the review is rejected, the results of the
    /// writes show them. The webhook does not rely on that, because a rejected write counts as a failure of its rollout.
    async fn missing(&self) -> Result<(Lanes<Vec<String>>, Option<String>), CallError> {
        let namespace = &self.names.namespace;
        let marker = Target::config_map(namespace, OWNER_CONFIG_MAP);
        let kinds = [
            SourceKind::Configuration,
            SourceKind::PullSecret,
            SourceKind::TrustBundle,
        ];
        let targets = kinds.map(|kind| self.names.target(kind, Some(TRUST_BUNDLE_VERSIONS[0])));
        let review = rights::rules_review(namespace);
        let rules = match self.remote.post(rights::RULES_REVIEWS, &review).await {
            Err(CallError::Refused { .. }) => return Ok((Lanes::default(), None)),
            Err(error) if error.concerns_one_object() => {
                let failed_read = format!("review of permissions: {}", error_chain(&error));
                return Ok((Lanes::default(), Some(failed_read)));
            }
            response => response?,
        };
        // Parsed here, because the response is large and the other requests may still be pending.
        let rules = rights::Rules::read(rules);
        let manifests = self.installation.manifests().iter().map(|it| &it.target);
        let missing = Lanes {
            configuration: rules.missing([&marker].into_iter().chain(targets.iter().flatten())),
            webhook: rules.missing([&marker].into_iter().chain(manifests)),
        };
        Ok((missing, None))
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
