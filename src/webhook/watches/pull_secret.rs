//! The pull Secret of the product namespace: one object, by name. The name is that of the newest configuration, in force
//! or not: a version comes into force only when its Secret was seen.

use chassis::telemetry::error_chain;
use chassis::watch::keep_watching;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::watcher::Event;

use super::{Watches, named};
use crate::knowledge::version::Seen;
use crate::knowledge::{Knowledge, PullSecretSource};

/// Watches for ever; begins anew when a configuration names another Secret.
pub(super) async fn watch(watches: &Watches) {
    loop {
        let name = current_name(watches);
        tokio::select! {
            () = watch_one(watches, &name) => {}
            () = watches.differs(&name, current_name) => watches.knowledge.set_pull_secret(PullSecretSource::default()),
        }
    }
}

fn current_name(watches: &Watches) -> String {
    watches.knowledge.newest().configuration.map_or_else(
        || watches.settings.settings.pull_secret.clone(),
        |configuration| configuration.pull_secret().name.clone(),
    )
}

async fn watch_one(watches: &Watches, name: &str) {
    let api: Api<Secret> = Api::namespaced(watches.client.clone(), &watches.settings.namespace);
    let synced = watches.readiness.condition("pull-secret-watch");
    let events = keep_watching(api, named(name), synced);
    pin_mut!(events);
    let mut listed = None;
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed = None,
            Event::InitApply(secret) => listed = Some(secret),
            Event::InitDone => take(&watches.knowledge, name, listed.take().as_ref()),
            Event::Apply(secret) => take(&watches.knowledge, name, Some(&secret)),
            Event::Delete(_) => take(&watches.knowledge, name, None),
        }
    }
}

pub(super) fn take(knowledge: &Knowledge, name: &str, secret: Option<&Secret>) {
    let Some(secret) = secret else {
        return knowledge.set_pull_secret(PullSecretSource::none(Seen::absent(name)));
    };
    let source = PullSecretSource::read(secret).unwrap_or_else(|error| {
        tracing::error!(error = error_chain(&error), "invalid pull Secret");
        PullSecretSource::unusable(&secret.metadata, &error)
    });
    knowledge.set_pull_secret(source);
}
