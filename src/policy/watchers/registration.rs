//! The entries of the webhook configuration on runtimes: one for each Watcher.

use api::watcher::Watcher;

use super::{RouteError, manager};
use crate::change::{self, Registration, RegistrationError, ResourceRule};

/// The entries of all Watchers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebhookEntries {
    /// The entries for runtimes.
    pub registrations: Vec<Registration>,
    /// Watchers without an entry, by `(namespace, name)`.
    pub rejected: Vec<((String, String), RejectedWatcher)>,
}

/// Reason why a Watcher has no entry on runtimes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectedWatcher {
    /// The component of the Watcher cannot be part of a URL.
    #[error(transparent)]
    Manager(RouteError),
    /// API servers would reject the entry of the Watcher.
    #[error(transparent)]
    Entry(RegistrationError),
}

/// Returns the entries of Watchers that are not being deleted. An invalid Watcher does not affect the other Watchers.
#[must_use]
pub fn webhook_entries<'w>(watchers: impl IntoIterator<Item = &'w Watcher>) -> WebhookEntries {
    let mut entries = WebhookEntries::default();
    for watcher in watchers {
        let meta = &watcher.metadata;
        if meta.deletion_timestamp.is_some() {
            continue;
        }
        let key = [&meta.namespace, &meta.name].map(|it| it.clone().unwrap_or_default());
        match registration(watcher, &key) {
            Ok(registration) => entries.registrations.push(registration),
            Err(error) => entries.rejected.push((key.into(), error)),
        }
    }
    entries
}

fn registration(
    watcher: &Watcher,
    [namespace, name]: &[String; 2],
) -> Result<Registration, RejectedWatcher> {
    let spec = &watcher.spec;
    let resource = &spec.resource_to_watch;
    let registration = Registration {
        namespace: namespace.clone(),
        name: name.clone(),
        watcher: change::Watcher {
            manager: manager(watcher).map_err(RejectedWatcher::Manager)?,
            field: spec.field,
            resources: vec![ResourceRule::new(
                &resource.group,
                &resource.version,
                &resource.resource,
            )],
        },
        labels: spec.labels_to_watch.clone().unwrap_or_default(),
    };
    registration.check().map_err(RejectedWatcher::Entry)?;
    Ok(registration)
}
