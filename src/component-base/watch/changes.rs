//! Changes of a set of objects, computed from the events of a watch.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _};
use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// A change of the watched objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchChange<K> {
    /// The object is new or changed, or was listed again.
    Put(K),
    /// The object of this name does not exist anymore, even if the event of its deletion was missed.
    Removed(String),
    /// A list is complete: its objects were put, and all other objects were removed.
    Listed,
}

/// Returns the changes that result from the events of one watch. Names must be unique, so the watch must be of one
/// namespace or of a cluster-scoped kind.
pub fn changes<K>(
    events: impl Stream<Item = Event<K>> + Send,
) -> impl Stream<Item = WatchChange<K>> + Send
where
    K: ResourceExt + Send,
{
    let mut names = Names::default();
    events.flat_map(move |event| stream::iter(names.changes(event)))
}

#[derive(Default)]
struct Names {
    known: BTreeSet<Arc<str>>,
    /// Names of the list that is being read.
    listed: BTreeSet<Arc<str>>,
}

impl Names {
    fn changes<K: ResourceExt>(&mut self, event: Event<K>) -> Vec<WatchChange<K>> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let name = Arc::<str>::from(object.name_any());
                self.listed.insert(Arc::clone(&name));
                // The list may be interrupted and read again, without this object.
                self.known.insert(name);
                vec![WatchChange::Put(object)]
            }
            Event::InitDone => {
                let listed = mem::take(&mut self.listed);
                let known = mem::replace(&mut self.known, listed);
                let removed = known.into_iter().filter(|it| !self.known.contains(it));
                let removed = removed.map(|it| WatchChange::Removed(it.to_string()));
                removed.chain([WatchChange::Listed]).collect()
            }
            Event::Apply(object) => {
                self.known.insert(object.name_any().into());
                vec![WatchChange::Put(object)]
            }
            Event::Delete(object) => {
                let name = object.name_any();
                self.known.remove(name.as_str());
                vec![WatchChange::Removed(name)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    /// Returns changes as `+name`, `-name` and `listed`.
    async fn texts(events: Vec<Event<ConfigMap>>) -> Vec<String> {
        let changes = changes(stream::iter(events)).map(|change| match change {
            WatchChange::Put(object) => format!("+{}", object.name_any()),
            WatchChange::Removed(name) => format!("-{name}"),
            WatchChange::Listed => "listed".to_owned(),
        });
        changes.collect().await
    }

    #[tokio::test]
    async fn what_a_complete_list_does_not_contain_is_removed() {
        let events = vec![
            Event::Init,
            Event::InitApply(object("a")),
            Event::InitApply(object("b")),
            Event::InitDone,
            Event::Apply(object("c")),
            Event::Delete(object("b")),
            Event::Init,
            Event::InitApply(object("c")),
            Event::InitDone,
        ];
        let expected = ["+a", "+b", "listed", "+c", "-b", "+c", "-a", "listed"];
        assert_eq!(texts(events).await, expected);
    }

    #[tokio::test]
    async fn an_object_of_an_interrupted_list_that_the_next_one_lacks_is_removed() {
        let events = vec![
            Event::Init,
            Event::InitApply(object("a")),
            Event::Init,
            Event::InitApply(object("b")),
            Event::InitDone,
        ];
        assert_eq!(texts(events).await, ["+a", "+b", "-a", "listed"]);
    }
}
