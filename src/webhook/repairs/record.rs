//! Times since when the parts of the active revision have their content, stored for the next leader, and the last valid
//! document, stored for replicas that start while the document in the cluster is invalid.
//!
//! The time of the last write of an object is in its managed fields. A write of metadata advances that time, so it is only
//! used if the content is new. The record contains the digest of the content.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::names::{CA_BUNDLE_MANAGER, REPAIR_RECORD};
use base64_simd::STANDARD;
use component_base::telemetry::error_chain;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use policy::admission::{PullSecret, Settings, TrustBundlePresence};
use policy::repairs::RevisionTimes;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::opt_in::NamespaceTimes;
use super::reconcile::Namespaces;
use crate::snapshot::{ActiveRevision, ObservedObject};

/// The parts whose times are stored.
const DOCUMENT: &str = "document";
const SETTINGS: &str = "settings";
const REGISTRIES: &str = "registries";
const CREDENTIALS: &str = "credentials";
const TRUST_BUNDLE: &str = "trust-bundle";

/// Key of the last valid document. The document is in the Secret with the times, because both have the same writer.
const LAST_VALID: &str = "last-valid-document";

/// Maximum size of a stored document, in bytes. A Secret has at most 1 MiB.
const LARGEST_DOCUMENT: usize = 1_000_000;

/// Key of the times of Namespaces.
const NAMESPACES: &str = "namespaces";

/// Maximum size of the times of Namespaces, in bytes.
const LARGEST_NAMESPACES: usize = 200_000;

/// Maximum size of the document and the times of Namespaces together, in bytes.
const LARGEST_RECORD: usize = 1_040_000;

/// Minimum interval between two writes of which only times of Namespaces are the reason. The Secret also has the document.
const NAMESPACES_INTERVAL: Duration = Duration::from_mins(1);

/// Pause after a failed write.
const WRITE_RETRY: Duration = Duration::from_secs(10);

/// Version of the decisions. It grows with a release in which a decision adds a change that none of the parts below tells of: Pods from
/// before the release were not missed.
const DECISIONS: u32 = 1;

/// The record. A line of the Secret is a digest and a time.
#[derive(Debug, Default)]
pub(super) struct Record {
    parts: BTreeMap<&'static str, Part>,
    is_read: bool,
    is_changed: bool,
    /// The earliest time of the next write, if the last one failed.
    retry_at: Option<Instant>,
    /// The last valid document, if it is not too large.
    last_valid: Option<Arc<str>>,
    /// Times since when Namespaces opt in.
    pub(super) namespaces: NamespaceTimes,
    /// Whether the times of Namespaces changed, and the earliest time of the next write for it.
    namespaces_changed: bool,
    namespaces_due: Option<Instant>,
    /// The Namespaces whose times are stored, and whether a selector reads their labels.
    followed: Option<(Namespaces, bool)>,
    /// The clock of the time from which the settings are in use.
    settings: Clock,
}

/// A clock that gave a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Clock {
    #[default]
    ApiServer,
    /// The next write of the record returns the time of the API server.
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    digest: [u8; 32],
    since: Timestamp,
}

impl Record {
    /// Returns the times of a revision; `None` while a part of it is not observed.
    pub(super) fn times(&mut self, active: &ActiveRevision) -> Option<RevisionTimes> {
        let configuration = active.configuration.as_deref()?;
        self.keep_document(&active.document);
        let secret = &active.pull_secret.object;
        if secret.presence == TrustBundlePresence::Unknown {
            return None;
        }
        let document = active.document.content?;
        let document = self.since(DOCUMENT, document, active.document.times?.written);
        let document = document.max(self.settings_since(configuration.settings(), document));
        let written = secret.times.map(|it| it.written);
        let registries = match &active.pull_secret.known {
            PullSecret::Known(keyring) => {
                let digest = Sha256::digest(format!("{keyring:?}")).into();
                written.map(|written| self.since(REGISTRIES, digest, written))
            }
            // Without a usable Secret, decisions do not depend on its registries.
            PullSecret::Unknown | PullSecret::Invalid => written,
        };
        let bundle = &active.bundle;
        let is_configured = matches!(configuration.trust_bundle(), Some(Ok(_)));
        if is_configured && active.trust_bundle == TrustBundlePresence::Unknown {
            return None;
        }
        Some(RevisionTimes {
            document,
            registries,
            credentials: self.content_since(CREDENTIALS, secret),
            bundle_exists: bundle.times.map(|it| it.created),
            bundle_content: self.content_since(TRUST_BUNDLE, bundle),
        })
    }

    /// Keeps the times since when these Namespaces opt in.
    pub(super) fn follow(&mut self, namespaces: &Namespaces, active: &ActiveRevision) {
        let has_selector = active.reads_labels();
        let followed = self.followed.as_ref();
        if followed.is_none_or(|it| !Arc::ptr_eq(&it.0, namespaces) || it.1 != has_selector) {
            self.namespaces_changed |= self.namespaces.follow(namespaces, has_selector);
            self.followed = Some((Arc::clone(namespaces), has_selector));
        }
    }

    fn keep_document(&mut self, document: &ObservedObject) {
        let Some(text) = &document.text else { return };
        // No document is better than an earlier one.
        let text = Some(text).filter(|it| it.len() <= LARGEST_DOCUMENT);
        if text != self.last_valid.as_ref() {
            self.last_valid = text.cloned();
            self.is_changed = true;
        }
    }

    /// Since when this process, or one with the same flags, leads. At the first record it is not known when the flags changed last.
    fn settings_since(&mut self, settings: &Settings, document: Timestamp) -> Timestamp {
        let digest = Sha256::digest(format!("{DECISIONS} {settings:?}")).into();
        let known = self.parts.get(SETTINGS);
        if known.is_some_and(|it| it.digest != digest) {
            self.settings = Clock::Node;
        }
        let first = if known.is_none() {
            document
        } else {
            Timestamp::now()
        };
        self.since(SETTINGS, digest, first)
    }

    fn content_since(&mut self, part: &'static str, object: &ObservedObject) -> Option<Timestamp> {
        Some(self.since(part, object.content?, object.times?.written))
    }

    fn since(&mut self, part: &'static str, digest: [u8; 32], written: Timestamp) -> Timestamp {
        if let Some(known) = self.parts.get(part)
            && known.digest == digest
        {
            return known.since;
        }
        let since = written;
        self.parts.insert(part, Part { digest, since });
        self.is_changed = true;
        since
    }

    /// Reads the record once. If the permission or the record is missing, the times of the objects are used.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        namespace: &str,
    ) -> Result<(), kube::Error> {
        if self.is_read {
            return Ok(());
        }
        let api = Api::<Secret>::namespaced(client.clone(), namespace);
        let secret = match api.get_opt(REPAIR_RECORD).await {
            Ok(secret) => secret,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let error = status.message;
                tracing::warn!(error, "record of revisions cannot be read");
                None
            }
            Err(error) => return Err(error),
        };
        let data = secret.and_then(|it| it.data).unwrap_or_default();
        let parts = [DOCUMENT, SETTINGS, REGISTRIES, CREDENTIALS, TRUST_BUNDLE].into_iter();
        self.parts = parts
            .filter_map(|it| Some((it, Part::parse(data.get(it)?)?)))
            .collect();
        self.last_valid = last_valid(&data);
        let namespaces = data.get(NAMESPACES);
        self.namespaces =
            namespaces.map_or_else(NamespaceTimes::default, |it| NamespaceTimes::parse(&it.0));
        self.is_read = true;
        Ok(())
    }

    /// Writes the record if it changed. A failure is logged once, and the write is retried after [`WRITE_RETRY`].
    pub(super) async fn write(&mut self, client: &Client, namespace: &str) {
        if self.retry_at.is_some_and(|it| Instant::now() < it) {
            return;
        }
        let is_due = self.namespaces_due.is_none_or(|it| it <= Instant::now());
        self.is_changed |= self.namespaces_changed && is_due;
        // The second time with the API server's time of the first one.
        for _ in 0..2 {
            if !self.is_changed || !self.apply(client, namespace).await {
                return;
            }
        }
    }

    /// Returns whether the record was written.
    async fn apply(&mut self, client: &Client, namespace: &str) -> bool {
        let data = self.parts.iter();
        let data = data.map(|(name, part)| ((*name).to_owned(), ByteString(part.text().into())));
        let document = self.last_valid.iter();
        let document =
            document.map(|it| (LAST_VALID.to_owned(), ByteString(it.as_bytes().to_vec())));
        let used = self.last_valid.as_ref().map_or(0, |it| it.len());
        let budget = LARGEST_RECORD.saturating_sub(used).min(LARGEST_NAMESPACES);
        let namespaces = self.namespaces.json(budget).into_iter();
        let namespaces = namespaces.map(|it| (NAMESPACES.to_owned(), ByteString(it)));
        let data = data.chain(document).chain(namespaces);
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(REPAIR_RECORD.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            ..Secret::default()
        };
        let api = Api::<Secret>::namespaced(client.clone(), namespace);
        let parameters = PatchParams::apply(CA_BUNDLE_MANAGER).force();
        let patch = Patch::Apply(&secret);
        match api.patch(REPAIR_RECORD, &parameters, &patch).await {
            Ok(written) => {
                let times = ObservedObject::of(&written.metadata).times;
                let settings = self.parts.get_mut(SETTINGS);
                self.is_changed = std::mem::take(&mut self.settings) == Clock::Node;
                if self.is_changed
                    && let Some((part, times)) = settings.zip(times)
                {
                    part.since = times.written;
                }
                self.retry_at = None;
                self.namespaces_changed = false;
                self.namespaces_due = Some(Instant::now() + NAMESPACES_INTERVAL);
                true
            }
            Err(error) => {
                let retry_at = Instant::now() + WRITE_RETRY;
                if self.retry_at.replace(retry_at).is_none() {
                    let error = error_chain(&error);
                    tracing::warn!(error, "record of revisions cannot be written");
                }
                false
            }
        }
    }
}

/// Returns the last valid document that a leader stored, and the metadata of the record.
pub(crate) async fn last_valid_document(
    client: &Client,
    namespace: &str,
) -> Result<Option<(ObjectMeta, Arc<str>)>, kube::Error> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = api.get_opt(REPAIR_RECORD).await?.unwrap_or_default();
    let text = secret.data.as_ref().and_then(last_valid);
    Ok(text.map(|text| (secret.metadata, text)))
}

fn last_valid(data: &BTreeMap<String, ByteString>) -> Option<Arc<str>> {
    Some(std::str::from_utf8(&data.get(LAST_VALID)?.0).ok()?.into())
}

impl Part {
    fn text(&self) -> String {
        format!("{} {}", STANDARD.encode_to_string(self.digest), self.since)
    }

    /// Parses a part; `None` if another client wrote the value.
    fn parse(value: &ByteString) -> Option<Self> {
        let (digest, since) = std::str::from_utf8(&value.0).ok()?.split_once(' ')?;
        Some(Self {
            digest: STANDARD.decode_to_vec(digest).ok()?.try_into().ok()?,
            since: since.parse().ok()?,
        })
    }
}
