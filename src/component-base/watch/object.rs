//! Watch of one object, by name.

use std::fmt::Debug;
use std::future::ready;

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::watch_with_backoff;
use crate::readiness::ReadinessCheck;

/// Returns the object after the first list is complete and after each event; `None` while it does not exist. The stream
/// does not end.
pub fn watch_object<K>(
    api: Api<K>,
    name: &str,
    check: ReadinessCheck,
) -> impl Stream<Item = Option<K>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = Config::default().fields(&format!("metadata.name={name}"));
    states(watch_with_backoff(api, config, check))
}

/// Returns the states of the object. A list that fails is followed by another `Init`. The object is kept until a list is
/// complete.
fn states<K>(events: impl Stream<Item = Event<K>>) -> impl Stream<Item = Option<K>> {
    let mut listed = None;
    events.filter_map(move |event| {
        ready(match event {
            Event::Init => {
                listed = None;
                None
            }
            Event::InitApply(object) => {
                listed = Some(object);
                None
            }
            Event::InitDone => Some(listed.take()),
            Event::Apply(object) => Some(Some(object)),
            Event::Delete(_) => Some(None),
        })
    })
}

#[cfg(test)]
mod tests;
