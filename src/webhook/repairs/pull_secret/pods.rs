//! Which namespaces hold Pods that ask for the pull Secret by their own annotations.
//!
//! Invariant: nothing is kept of a Pod that does not ask. Finished Pods count as long as they exist: metadata does
//! not tell.

use std::collections::{HashMap, HashSet};
use std::mem;

use api::{Feature, FeatureSet, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use policy::admission::Annotations;

use super::state::Dirty;

/// What matters of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodSight {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) asks: bool,
}

impl PodSight {
    pub(super) fn read(metadata: ObjectMeta) -> Self {
        let annotations = metadata.annotations.unwrap_or_default();
        // Whether the feature is available is asked when the need is decided, so a configuration that changes live
        // needs no second look at the Pods: what the alias stands for beside this feature is of no interest.
        let asks = !annotations.contains_key(names::MIRROR_POD)
            && Annotations::collect(annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())))
                .requested(FeatureSet::from_iter(Feature::ALL))
                .contains(Feature::PullSecret);
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            asks,
        }
    }
}

type Names = HashMap<String, HashSet<Box<str>>>;

/// The Pods that ask, by namespace.
#[derive(Debug, Default)]
pub(super) struct Pods {
    asking: Names,
    listed: Names,
    known: bool,
}

impl Pods {
    /// Whether a Pod of the namespace asks; `None` before the first complete list.
    pub(super) fn ask(&self, namespace: &str) -> Option<bool> {
        self.known.then(|| self.asking.contains_key(namespace))
    }

    pub(super) fn see(&mut self, event: Event<PodSight>) -> Dirty {
        match event {
            Event::Init => {
                self.listed = Names::new();
                Dirty::Nothing
            }
            Event::InitApply(pod) => {
                note(&mut self.listed, pod);
                Dirty::Nothing
            }
            Event::InitDone => {
                self.asking = mem::take(&mut self.listed);
                self.known = true;
                Dirty::All
            }
            Event::Apply(pod) => note(&mut self.asking, pod),
            Event::Delete(pod) => note(&mut self.asking, PodSight { asks: false, ..pod }),
        }
    }
}

/// Dirty when the first Pod of a namespace came or the last one went.
fn note(names: &mut Names, pod: PodSight) -> Dirty {
    let PodSight {
        namespace,
        name,
        asks,
    } = pod;
    let before = names.contains_key(&namespace);
    if asks {
        names
            .entry(namespace.clone())
            .or_default()
            .insert(name.into());
    } else if let Some(others) = names.get_mut(&namespace) {
        others.remove(name.as_str());
        if others.is_empty() {
            names.remove(&namespace);
        }
    }
    if names.contains_key(&namespace) == before {
        Dirty::Nothing
    } else {
        Dirty::Namespace(namespace)
    }
}
