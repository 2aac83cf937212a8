//! The ConfigMap with the configuration document.
//!
//! A broken new document, or a deleted ConfigMap, leaves the last good one in force and says so: log, metric, readiness
//! detail, Event. A good one comes into force with the parts that its ConfigMap requires
//! ([`crate::knowledge::version`]).

use std::sync::Arc;

use api::config::{Document, DocumentError};
use api::names::CONFIG_KEY;
use chassis::readiness::Condition;
use chassis::telemetry::error_chain;
use chassis::watch::keep_watching;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::watcher;
use kube::{Api, Resource as _};
use policy::admission::{Configuration, ConfigurationError, Notice, Settings};

use super::{Watches, named};
use crate::knowledge::version::Requirements;

/// Why what is in the cluster is not in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("ConfigMap not found")]
    Absent,
    #[error("ConfigMap: key {CONFIG_KEY} is missing")]
    NoKey,
    #[error("invalid document")]
    Document(#[source] DocumentError),
    #[error("invalid document")]
    Configuration(#[source] ConfigurationError),
}

pub(super) async fn watch(watches: &Watches) {
    let settings = &watches.settings;
    let api: Api<ConfigMap> = Api::namespaced(watches.client.clone(), &settings.namespace);
    let synced = watches.readiness.condition("configuration-watch");
    let events = keep_watching(api, named(&settings.config_map), synced);
    pin_mut!(events);
    let mut keeper = Keeper::new(watches);
    let mut listed = None;
    while let Some(event) = events.next().await {
        match event {
            watcher::Event::Init => listed = None,
            watcher::Event::InitApply(map) => listed = Some(map),
            watcher::Event::InitDone => keeper.take(listed.take().as_ref()).await,
            watcher::Event::Apply(map) => keeper.take(Some(&map)).await,
            watcher::Event::Delete(_) => keeper.take(None).await,
        }
    }
}

pub(super) struct Keeper<'a> {
    watches: &'a Watches,
    condition: Condition,
    last_error: Option<String>,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(watches: &'a Watches) -> Self {
        let condition = watches.readiness.condition("configuration");
        condition.not_ready("no configuration document observed yet");
        Self {
            watches,
            condition,
            last_error: None,
        }
    }

    pub(super) async fn take(&mut self, map: Option<&ConfigMap>) {
        match read(map, &self.watches.settings.settings) {
            Ok(configuration) => {
                let requirements = map.map(|map| Requirements::read(&map.metadata));
                self.accept(configuration, requirements.unwrap_or_default());
            }
            Err(error) => self.refuse(map, &error).await,
        }
    }

    fn accept(&mut self, configuration: Configuration, requirements: Requirements) {
        self.last_error = None;
        self.watches
            .metrics
            .configuration_last_reload_successful
            .set(1);
        let notices = shown(configuration.notices());
        if notices.is_empty() {
            self.condition.ready();
        } else {
            self.condition.detail(notices.join("; "));
        }
        let knowledge = &self.watches.knowledge;
        let last = knowledge.newest().configuration;
        let same = last.filter(|it| **it == configuration);
        if same.is_none() {
            tracing::info!(?notices, "configuration loaded");
        }
        // An equal one stays the same value, so that nobody takes it for another.
        let configuration = same.unwrap_or_else(|| Arc::new(configuration));
        knowledge.offer(configuration, requirements);
    }

    async fn refuse(&mut self, map: Option<&ConfigMap>, error: &Unusable) {
        let text = error_chain(error);
        self.watches
            .metrics
            .configuration_last_reload_successful
            .set(0);
        if let (Unusable::Absent, Some(last)) = (error, self.watches.knowledge.configuration()) {
            // Nobody says any more what belongs to it: without this a rotated Secret would wait for ever.
            self.watches.knowledge.set_configuration(last);
        }
        if self.watches.knowledge.configuration().is_some() {
            self.condition
                .detail(format!("the last valid one is active: {text}"));
        } else {
            self.condition.not_ready(text.clone());
        }
        if self.last_error.as_ref() == Some(&text) {
            return;
        }
        self.watches.metrics.rejected_documents.inc();
        tracing::error!(
            error = text,
            "invalid configuration, last valid one stays active"
        );
        if let Some(map) = map {
            self.report(map, &text).await;
        }
        self.last_error = Some(text);
    }

    async fn report(&self, map: &ConfigMap, text: &str) {
        let event = Event {
            type_: EventType::Warning,
            reason: "InvalidConfiguration".to_owned(),
            note: Some(text.chars().take(1000).collect()),
            action: "LoadConfiguration".to_owned(),
            secondary: None,
        };
        // A Recorder takes Events for the same that differ in their note only, so each error has one of its own.
        let recorder = Recorder::new(self.watches.client.clone(), self.watches.reporter.clone());
        if let Err(error) = recorder.publish(&event, &map.object_ref(&())).await {
            tracing::warn!(error = error_chain(&error), "failed to write Event");
        }
    }
}

pub(super) fn read(
    map: Option<&ConfigMap>,
    settings: &Settings,
) -> Result<Configuration, Unusable> {
    let map = map.ok_or(Unusable::Absent)?;
    let text = map
        .data
        .as_ref()
        .and_then(|data| data.get(CONFIG_KEY))
        .ok_or(Unusable::NoKey)?;
    let document = Document::parse(text).map_err(Unusable::Document)?;
    Configuration::new(&document, settings).map_err(Unusable::Configuration)
}

/// The texts of the first notices, each shortened, and how many there are beyond them: a document may have thousands, and
/// each becomes part of one log line and of the readiness text.
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

/// Number of notices that are shown.
const NOTICES: usize = 8;

/// Characters of a notice that are shown.
const NOTICE_CHARS: usize = 160;
