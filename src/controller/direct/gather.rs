//! What one pass sees on one runtime: one round trip for everything that is always looked at, another for the rest.
//!
//! Invariant: only reads, and a question about our own rights. An object that we may not read is a right that is
//! missing, not an object that is absent. Deliberately absent: what any of it means.

use std::collections::BTreeMap;

use api::kcp::OWNER_CONFIG_MAP;
use api::names::{DOCKER_CONFIG_TYPE, PULL_SECRET_COPY_LABEL, WEBHOOK_CERTIFICATE, WEBHOOK_LEASE};
use futures::future::{join_all, try_join_all};
use policy::sync::inventory::candidates;
use policy::sync::manifests::{Installation, Phase};
use policy::sync::observed::{Identity, Made, Names, NamespaceState, Observed};
use policy::sync::target::Target;
use policy::sync::{Lane, Lanes};
use serde_json::Value;

use super::rights;
use crate::clients::{CallError, Remote};

/// Versions in which ClusterTrustBundles may be served, the most likely first: it is asked for alone.
const TRUST_BUNDLE_VERSIONS: [&str; 3] = ["v1beta1", "v1", "v1alpha1"];

/// Secrets in one page of a list: their memory at once.
const PAGE: u32 = 100;

/// Characters of a cluster's UID; a status with a longer one is refused, and so would say nothing new for good.
const MAX_UID: usize = 64;

const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;

/// Looks at a runtime.
pub(super) struct Gather<'a> {
    pub(super) remote: &'a Remote,
    pub(super) names: &'a Names,
    pub(super) installation: &'a Installation,
}

/// A version of the API of bundles, and the bundle if it is there.
type Bundle = (String, Option<Value>);

/// What a version says, or the right that we lack to ask it.
enum Listed {
    There(Bundle),
    Forbidden(String),
}

/// An object, or the right that we lack to read it.
enum Read {
    There(Option<Value>),
    Forbidden(String),
}

impl Gather<'_> {
    /// Everything but the installation's lesser objects.
    pub(super) async fn essentials(&self) -> Result<Observed, CallError> {
        let (cluster, state, (objects, mut unread), (bundle, unlisted), missing_rights) = futures::try_join!(
            self.kube_system(),
            self.namespace(&self.names.namespace),
            self.objects(),
            self.trust_bundle(),
            self.missing(),
        )?;
        unread.configuration.extend(unlisted);
        let [marker, pull_secret, configuration, deployment] = objects;
        let (trust_bundles, trust_bundle) = bundle.unzip();
        Ok(Observed {
            cluster: cluster
                .and_then(|it| text(&it, "/metadata/uid"))
                .filter(|uid| uid.len() <= MAX_UID),
            marker,
            namespace: state,
            trust_bundles,
            missing_rights,
            unread,
            pull_secret,
            trust_bundle: trust_bundle.flatten(),
            configuration,
            deployment,
            made: None,
            installed: None,
            unread_inventory: BTreeMap::new(),
        })
    }

    /// The marker, the pull Secret, the document and the Deployment, and the rights to read them that are missing.
    async fn objects(&self) -> Result<([Option<Value>; 4], Lanes<Vec<String>>), CallError> {
        let Names {
            namespace,
            pull_secret,
            configuration,
            ..
        } = self.names;
        let secret = pull_secret.as_ref();
        let targets: [(&[Lane], Option<Target>); 4] = [
            (
                &Lane::ALL,
                Some(Target::config_map(namespace, OWNER_CONFIG_MAP)),
            ),
            (
                &[Lane::Configuration],
                secret.map(|name| Target::secret(namespace, name)),
            ),
            (
                &[Lane::Configuration],
                Some(Target::config_map(namespace, configuration)),
            ),
            (&[Lane::Webhook], self.installation.deployment().cloned()),
        ];
        let reads = targets.iter().map(|(_, target)| async move {
            match target {
                Some(target) => self.read(target).await,
                None => Ok(Read::There(None)),
            }
        });
        let mut unread: Lanes<Vec<String>> = Lanes::default();
        let mut objects = [const { None }; 4];
        let reads = try_join_all(reads).await?;
        for ((object, (lanes, _)), read) in objects.iter_mut().zip(&targets).zip(reads) {
            match read {
                Read::There(found) => *object = found,
                Read::Forbidden(right) => {
                    for lane in *lanes {
                        unread.get_mut(*lane).push(right.clone());
                    }
                }
            }
        }
        Ok((objects, unread))
    }

    /// Adds the installation's objects but the Deployment, and those of the inventory that it does not have any more.
    pub(super) async fn installed(&self, observed: &mut Observed) -> Result<(), CallError> {
        let others = candidates(self.installation, self.names, observed);
        let targets = self
            .installation
            .manifests()
            .iter()
            .filter(|it| it.phase != Phase::Deployment)
            .map(|it| &it.target);
        let reads = targets
            .chain(&others)
            .map(|target| async move { Ok((target, self.read(target).await?)) });
        let mut installed = BTreeMap::new();
        for (target, read) in try_join_all(reads).await? {
            match read {
                Read::There(found) => installed.extend(found.map(|it| (target.clone(), it))),
                Read::Forbidden(right) if others.contains(target) => {
                    observed.unread_inventory.insert(target.clone(), right);
                }
                Read::Forbidden(right) => observed.unread.webhook.push(right),
            }
        }
        observed.installed = Some(installed);
        Ok(())
    }

    /// Adds what the webhook made while it ran, and the rights that we lack to delete it. A list that is refused is a right
    /// that is missing, so that nothing begins of what cannot be completed.
    pub(super) async fn made(&self, observed: &mut Observed) -> Result<(), CallError> {
        let namespace = &self.names.namespace;
        let mut made = Made::default();
        for target in [
            Target::secret(namespace, WEBHOOK_CERTIFICATE),
            Target::lease(namespace, WEBHOOK_LEASE),
        ] {
            match self.read(&target).await? {
                Read::There(found) => {
                    let found = found.map(|it| Identity::of(target, &it));
                    made.others.extend(found);
                }
                Read::Forbidden(right) => observed.unread.webhook.push(right),
            }
        }
        match self.copies().await? {
            Some(copies) => made.copies = copies,
            None => observed.unread.webhook.push(everywhere("list")),
        }
        if !made.copies.is_empty() && !self.may_delete_copies().await? {
            observed.unread.webhook.push(everywhere("delete"));
        }
        observed.made = Some(made);
        Ok(())
    }

    /// The copies of the pull Secret in all namespaces; `None` if they may not be listed.
    async fn copies(&self) -> Result<Option<Vec<Identity>>, CallError> {
        let (label, kind) = (escaped(PULL_SECRET_COPY_LABEL), escaped(DOCKER_CONFIG_TYPE));
        let selectors = format!("labelSelector={label}%3Dtrue&fieldSelector=type%3D{kind}");
        let mut copies = Vec::new();
        let mut next = String::new();
        loop {
            let query = format!("/api/v1/secrets?{selectors}&limit={PAGE}{next}");
            let page = match self.remote.list(&query).await {
                Err(CallError::Refused {
                    status: FORBIDDEN, ..
                }) => return Ok(None),
                page => page?,
            };
            let items = page.get("items").and_then(Value::as_array);
            copies.extend(items.into_iter().flatten().filter_map(Identity::of_copy));
            match text(&page, "/metadata/continue").filter(|it| !it.is_empty()) {
                Some(token) => next = format!("&continue={}", escaped(&token)),
                None => return Ok(Some(copies)),
            }
        }
    }

    /// Whether Secrets may be deleted in all namespaces. Who cannot even ask is told by the deletions.
    async fn may_delete_copies(&self) -> Result<bool, CallError> {
        match self
            .remote
            .post(rights::ACCESS, &rights::may("delete", "secrets"))
            .await
        {
            Err(CallError::Refused { .. }) => Ok(true),
            answer => Ok(answer?.pointer("/status/allowed") != Some(&Value::Bool(false))),
        }
    }

    async fn read(&self, target: &Target) -> Result<Read, CallError> {
        match self.remote.get(&target.path()).await {
            Ok(found) => Ok(Read::There(found)),
            Err(CallError::Refused {
                status: FORBIDDEN, ..
            }) => Ok(Read::Forbidden(rights::name("get", target))),
            Err(error) => Err(error),
        }
    }

    /// A cluster that does not let us ask who it is does not say who it is.
    async fn kube_system(&self) -> Result<Option<Value>, CallError> {
        match self.remote.get("/api/v1/namespaces/kube-system").await {
            Err(CallError::Refused {
                status: FORBIDDEN, ..
            }) => Ok(None),
            answer => answer,
        }
    }

    async fn namespace(&self, name: &str) -> Result<NamespaceState, CallError> {
        let found = self
            .remote
            .get(&format!("/api/v1/namespaces/{name}"))
            .await?;
        Ok(match found {
            None => NamespaceState::Missing,
            Some(found) if found.pointer("/metadata/deletionTimestamp").is_some() => {
                NamespaceState::Terminating
            }
            Some(_) => NamespaceState::Active,
        })
    }

    /// The best version that is served, and the bundle in it; beside it the right that we lack to know. A list tells in
    /// one answer what a read cannot: whether the bundle is absent or its API.
    async fn trust_bundle(&self) -> Result<(Option<Bundle>, Option<String>), CallError> {
        let Some(name) = &self.names.trust_bundle else {
            return Ok((None, None));
        };
        let (likely, others) = TRUST_BUNDLE_VERSIONS.split_at(1);
        for versions in [likely, others] {
            let lists = versions
                .iter()
                .map(|version| self.trust_bundle_in(version, name));
            for answer in join_all(lists).await {
                match answer {
                    Ok(None) => {}
                    Ok(Some(Listed::There(bundle))) => return Ok((Some(bundle), None)),
                    Ok(Some(Listed::Forbidden(right))) => return Ok((None, Some(right))),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((None, None))
    }

    /// `None`: the version is not served.
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
                Ok(Some(Listed::There((version.to_owned(), first))))
            }
            Err(CallError::Refused {
                status: NOT_FOUND, ..
            }) => Ok(None),
            Err(CallError::Refused {
                status: FORBIDDEN, ..
            }) => Ok(Some(Listed::Forbidden(rights::name("list", &target)))),
            Err(error) => Err(error),
        }
    }

    /// The rights that we lack. Who cannot even ask about them is told by the writes.
    async fn missing(&self) -> Result<Lanes<Vec<String>>, CallError> {
        let Names {
            namespace,
            pull_secret,
            trust_bundle,
            configuration,
        } = self.names;
        let marker = Target::config_map(namespace, OWNER_CONFIG_MAP);
        let mut targets = vec![Target::config_map(namespace, configuration)];
        targets.extend(pull_secret.as_ref().map(|it| Target::secret(namespace, it)));
        targets.extend(
            trust_bundle
                .as_ref()
                .map(|it| Target::trust_bundle(TRUST_BUNDLE_VERSIONS[0], it)),
        );
        let question = rights::question(namespace);
        let rules = match self.remote.post(rights::PATH, &question).await {
            Err(CallError::Refused { .. }) => return Ok(Lanes::default()),
            answer => answer?,
        };
        // At once, as the list is long and the other answers may be awaited still.
        let rules = rights::Rules::read(rules);
        let manifests = self.installation.manifests().iter().map(|it| &it.target);
        Ok(Lanes {
            configuration: rules.missing([&marker].into_iter().chain(&targets)),
            webhook: rules.missing([&marker].into_iter().chain(manifests)),
        })
    }
}

/// A right to Secrets that no namespace limits.
fn everywhere(verb: &str) -> String {
    format!("{verb} secrets in all namespaces")
}

/// Names of bundles hold colons, and those of labels and types a slash; nothing else that a name can hold needs escaping.
fn escaped(name: &str) -> String {
    name.replace('%', "%25")
        .replace(':', "%3A")
        .replace('/', "%2F")
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer)?.as_str().map(str::to_owned)
}
