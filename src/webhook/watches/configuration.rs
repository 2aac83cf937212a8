//! The ConfigMap with the configuration document.
//!
//! After an invalid document, or the deletion of the ConfigMap, the last valid document stays active. A log message,
//! metric, readiness detail and Event report it. A replica that starts with an invalid document uses the one that the
//! leader stored. A valid document becomes active together with the objects that its ConfigMap requires.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::config::{Document, DocumentError};
use api::names::CONFIG_KEY;
use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use component_base::watch::watch_object;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Resource as _};
use policy::admission::{Configuration, ConfigurationError, Notice, Settings};
use tokio::time::sleep;

use super::Watches;
use crate::repairs::last_valid_document;
use crate::snapshot::{ObservedObject, Requirements};

/// Maximum number of notices that are shown.
const NOTICES: usize = 8;

/// Maximum number of characters of a notice that are shown.
const NOTICE_CHARS: usize = 160;

/// Pause between two attempts to read the stored document.
const STORED_RETRY: Duration = Duration::from_secs(5);

/// Reason why the document in the cluster is not used.
#[derive(Debug, thiserror::Error)]
enum InvalidConfiguration {
    #[error("ConfigMap not found")]
    Absent,
    #[error("ConfigMap: key {CONFIG_KEY} is missing")]
    NoKey,
    #[error("invalid document")]
    Document(#[from] DocumentError),
    #[error("invalid document")]
    Configuration(#[from] ConfigurationError),
}

pub(super) async fn watch(watches: &Watches) {
    let api = Api::namespaced(watches.client.clone(), &watches.namespace);
    let synced = watches.readiness.check("configuration-watch");
    let mut maps = pin!(watch_object(api, &watches.config_map, synced));
    let mut loader = ConfigurationLoader::new(watches);
    let mut next = maps.next().await;
    while let Some(map) = next {
        loader.load(map.as_ref()).await;
        next = loop {
            tokio::select! {
                next = maps.next() => break next,
                () = sleep(STORED_RETRY), if loader.is_stored_unread => {
                    loader.load(map.as_ref()).await;
                }
            }
        };
    }
}

/// Processes each state of the ConfigMap.
pub(super) struct ConfigurationLoader<'a> {
    watches: &'a Watches,
    condition: ReadinessCheck,
    last_error: Option<String>,
    /// The stored document is needed and could not be read.
    is_stored_unread: bool,
}

impl<'a> ConfigurationLoader<'a> {
    pub(super) fn new(watches: &'a Watches) -> Self {
        let condition = watches.readiness.check("configuration");
        condition.not_ready("no configuration document observed yet");
        Self {
            watches,
            condition,
            last_error: None,
            is_stored_unread: false,
        }
    }

    pub(super) async fn load(&mut self, map: Option<&ConfigMap>) {
        self.is_stored_unread = false;
        match read(map, &self.watches.settings) {
            Ok((configuration, requirements, document)) => {
                self.accept(configuration, requirements, document);
            }
            Err(error) => self.reject(map, &error).await,
        }
    }

    fn accept(
        &mut self,
        configuration: Configuration,
        requirements: Requirements,
        document: ObservedObject,
    ) {
        self.last_error = None;
        self.watches.metrics.last_reload_successful.set(1);
        let notices = shown(configuration.notices());
        if notices.is_empty() {
            self.condition.ready();
        } else {
            self.condition.detail(notices.join("; "));
        }
        let snapshots = &self.watches.snapshots;
        let last = snapshots.latest().configuration;
        // An equal configuration keeps the same value, so that readers can compare pointers.
        let same = last.filter(|it| **it == configuration);
        if same.is_none() {
            tracing::info!(?notices, "configuration loaded");
        }
        snapshots.set_revision(
            same.unwrap_or_else(|| Arc::new(configuration)),
            requirements,
            Some(document),
        );
    }

    async fn reject(&mut self, map: Option<&ConfigMap>, error: &InvalidConfiguration) {
        let text = error_chain(error);
        self.watches.metrics.last_reload_successful.set(0);
        let snapshots = &self.watches.snapshots;
        // A deleted document is not replaced: its deletion may be intended.
        if snapshots.configuration().is_none()
            && let Some(map) = map
        {
            self.use_stored(map).await;
        }
        let active = snapshots.configuration();
        match (error, &active) {
            // The requirements are removed together with the ConfigMap. Otherwise a rotated Secret would never become active.
            (InvalidConfiguration::Absent, Some(active)) => {
                snapshots.set_configuration(Arc::clone(active));
            }
            (_, None) => {
                let metadata = map.map(|it| &it.metadata);
                let absent = || ObservedObject::absent(&self.watches.config_map);
                snapshots.set_unusable_document(
                    metadata.map(Requirements::read).unwrap_or_default(),
                    metadata.map_or_else(absent, ObservedObject::of),
                );
            }
            _ => {}
        }
        if active.is_some() {
            self.condition
                .detail(format!("the last valid one is active: {text}"));
        } else {
            self.condition.not_ready(text.clone());
        }
        if self.last_error.as_ref() == Some(&text) {
            return;
        }
        self.watches.metrics.reload_failures.inc();
        tracing::error!(
            error = text,
            "invalid configuration, last valid one stays active"
        );
        if let Some(map) = map {
            self.report(map, &text).await;
        }
        self.last_error = Some(text);
    }

    /// Activates the document that the leader stored, if it is valid, with the requirements of the ConfigMap: a pull Secret
    /// that it requires is expected to come back.
    async fn use_stored(&mut self, map: &ConfigMap) {
        let (client, namespace) = (&self.watches.client, &self.watches.namespace);
        let (metadata, text) = match last_valid_document(client, namespace).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return,
            Err(error) => {
                let is_forbidden = matches!(&error, kube::Error::Api(it) if it.code == 403);
                self.is_stored_unread = !is_forbidden;
                let error = error_chain(&error);
                tracing::warn!(error, "stored document cannot be read");
                return;
            }
        };
        match configuration(&text, &self.watches.settings) {
            Ok(configuration) => {
                tracing::warn!("configuration loaded from the stored document");
                let document = ObservedObject::of(&metadata).with_text(&text);
                let requirements = Requirements::read(&map.metadata);
                let snapshots = &self.watches.snapshots;
                snapshots.set_revision(Arc::new(configuration), requirements, Some(document));
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "stored document is invalid");
            }
        }
    }

    async fn report(&self, map: &ConfigMap, text: &str) {
        let event = Event {
            type_: EventType::Warning,
            reason: "InvalidConfiguration".to_owned(),
            note: Some(text.chars().take(1000).collect()),
            action: "LoadConfiguration".to_owned(),
            secondary: None,
        };
        // A Recorder ignores differences of notes, so each error has a separate Recorder.
        let recorder = Recorder::new(self.watches.client.clone(), self.watches.reporter.clone());
        if let Err(error) = recorder.publish(&event, &map.object_ref(&())).await {
            tracing::warn!(error = error_chain(&error), "failed to write Event");
        }
    }
}

fn read(
    map: Option<&ConfigMap>,
    settings: &Settings,
) -> Result<(Configuration, Requirements, ObservedObject), InvalidConfiguration> {
    let map = map.ok_or(InvalidConfiguration::Absent)?;
    let text = map.data.as_ref().and_then(|data| data.get(CONFIG_KEY));
    let text = text.ok_or(InvalidConfiguration::NoKey)?;
    let configuration = configuration(text, settings)?;
    let object = ObservedObject::of(&map.metadata).with_text(text);
    Ok((configuration, Requirements::read(&map.metadata), object))
}

fn configuration(text: &str, settings: &Settings) -> Result<Configuration, InvalidConfiguration> {
    Ok(Configuration::new(&Document::parse(text)?, settings)?)
}

/// Returns the texts of the first notices, each truncated, and the number of further notices. A document may have
/// thousands, and each becomes part of one log message and of the readiness text.
fn shown(notices: &[Notice]) -> Vec<String> {
    let texts = notices.iter().take(NOTICES).map(|notice| {
        let text = notice.to_string();
        let end = text.char_indices().nth(NOTICE_CHARS).map(|(at, _)| at);
        end.map_or_else(|| text.clone(), |end| format!("{}…", &text[..end]))
    });
    let rest = notices.len().saturating_sub(NOTICES);
    let rest = (rest > 0).then(|| format!("and {rest} more"));
    texts.chain(rest).collect()
}
