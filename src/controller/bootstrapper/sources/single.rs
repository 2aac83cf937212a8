//! A watch of one object, as a stream of what is there: the object, or nothing.
//!
//! Invariant: nothing is said before a complete list, and a watch that fails says nothing: neither may pass for a
//! deletion.

use std::fmt::Debug;

use chassis::readiness::Condition;
use chassis::watch::keep_watching;
use futures::stream::{self, Stream, StreamExt as _};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The object of that name from now on; `None` while there is none.
pub(super) fn single<K>(
    api: Api<K>,
    name: &str,
    condition: Condition,
) -> impl Stream<Item = Option<K>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = Config::default().fields(&format!("metadata.name={name}"));
    let events = keep_watching(api, config, condition);
    let state = (Box::pin(events), None);
    stream::unfold(state, async |(mut events, mut listed)| {
        loop {
            match events.next().await? {
                Event::Init => listed = None,
                Event::InitApply(object) => listed = Some(object),
                Event::InitDone => {
                    let found = listed.take();
                    return Some((found, (events, None)));
                }
                Event::Apply(object) => return Some((Some(object), (events, None))),
                Event::Delete(_) => return Some((None, (events, None))),
            }
        }
    })
}
