//! Everything that the mirror decides from, and the decision for one namespace.
//!
//! Invariant: no IO and no clock. A namespace that the snapshot lacks, or that terminates, or that holds the source is
//! settled whatever it holds.

use std::collections::HashMap;
use std::sync::Arc;

use policy::admission::Configuration;
use policy::mirror::{Action, Need, RemovalCause, SourcePresence, need, plan};

use crate::knowledge::version::InForce;
use crate::knowledge::{Knowledge, KnownNamespace, SecretContent};

use super::copies::Copies;
use super::found::{Digest, Found, Identity};
use super::pods::Pods;

/// Which namespaces have to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dirty {
    Nothing,
    Namespace(String),
    All,
}

/// What is copied. Without `Debug`: it leads to credentials.
pub(super) struct Source {
    pub(super) content: Arc<SecretContent>,
    pub(super) digest: Digest,
}

/// Something to do in one namespace.
#[derive(Clone)]
pub(super) struct Job {
    /// The Secret's name, as configured when this was decided.
    pub(super) secret: String,
    pub(super) namespace: String,
    pub(super) work: Work,
}

#[derive(Clone)]
pub(super) enum Work {
    Apply(Arc<Source>),
    Recreate(Identity, Arc<Source>),
    Remove(Identity, RemovalCause),
    /// Say that a foreign Secret is in the way.
    Report(Identity),
}

impl Work {
    /// What metrics call it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::Recreate(..) => "recreate",
            Self::Remove(..) => "remove",
            Self::Report(_) => "report",
        }
    }
}

/// What to do about a namespace now.
pub(super) enum Verdict {
    Settled,
    Act(Job),
    /// A removal because the copy is no longer needed, or the source was deleted: not at once, as both may be undone.
    Linger(Job),
}

/// See the module.
#[derive(Default)]
pub(super) struct State {
    product_namespace: String,
    configuration: Option<Arc<Configuration>>,
    namespaces: Arc<HashMap<String, Arc<KnownNamespace>>>,
    source: Option<Arc<Source>>,
    /// Whether the source is known not to exist.
    is_absent: bool,
    pub(super) pods: Pods,
    pub(super) copies: Copies,
}

impl State {
    pub(super) fn new(product_namespace: String) -> Self {
        Self {
            product_namespace,
            ..Self::default()
        }
    }

    /// The Secret's name; `None` without a configuration.
    pub(super) fn secret_name(&self) -> Option<&str> {
        let configuration = self.configuration.as_ref()?;
        Some(&configuration.pull_secret().name)
    }

    /// Every namespace that a decision may be about.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.namespaces.keys()
    }

    pub(super) fn is_product_namespace(&self, namespace: &str) -> bool {
        namespace == self.product_namespace
    }

    /// Takes over what is known now, and gives the namespaces that it concerns (gone ones too).
    pub(super) fn refresh(&mut self, knowledge: &Knowledge) -> Vec<String> {
        // One version: or the bytes of one Secret could be written under the name of another.
        let in_force = knowledge.in_force();
        let everywhere = self.take_configuration(&in_force) | self.take_source(&in_force);
        let old = std::mem::replace(&mut self.namespaces, knowledge.namespaces());
        let unchanged = |(name, known): &(&String, &Arc<KnownNamespace>)| {
            !everywhere && old.get(*name).is_some_and(|it| Arc::ptr_eq(it, known))
        };
        let gone = old.keys().filter(|it| !self.namespaces.contains_key(*it));
        let changed = self.namespaces.iter().filter(|it| !unchanged(it));
        changed.map(|(name, _)| name).chain(gone).cloned().collect()
    }

    /// What to do about the namespace.
    pub(super) fn decide(&self, name: &str) -> Verdict {
        self.verdict(name).unwrap_or(Verdict::Settled)
    }

    fn verdict(&self, name: &str) -> Option<Verdict> {
        let configuration = self.configuration.as_deref()?;
        let namespace = self.namespaces.get(name)?;
        let found = self.copies.of(name);
        let blocked = namespace.terminating || found.is_some_and(|it| it.terminating);
        if blocked || !self.copies.known() || self.is_product_namespace(name) {
            return None;
        }
        let asked = self.pods.ask(name);
        let need = |pods| need(configuration, name, &namespace.view, pods);
        let pods_decide = need(true) != need(false);
        if asked.is_none() && pods_decide && self.presence() != SourcePresence::Absent {
            return None;
        }
        let work = self.work(need(asked == Some(true)), found)?;
        let lingers = matches!(work, Work::Remove(..));
        let job = Job {
            secret: configuration.pull_secret().name.clone(),
            namespace: name.to_owned(),
            work,
        };
        Some(if lingers {
            Verdict::Linger(job)
        } else {
            Verdict::Act(job)
        })
    }

    fn work(&self, need: Need, found: Option<&Found>) -> Option<Work> {
        let source = self.source.as_ref();
        let observed = found.map_or(policy::mirror::Observed::Nothing, |it| {
            it.observed(source.map(|source| source.digest))
        });
        let identity = || found.map(|it| it.identity.clone());
        match plan(need, self.presence(), observed) {
            Action::Keep => None,
            Action::Apply => Some(Work::Apply(Arc::clone(source?))),
            Action::Recreate => Some(Work::Recreate(identity()?, Arc::clone(source?))),
            Action::Remove(cause) => Some(Work::Remove(identity()?, cause)),
            Action::ReportForeign => Some(Work::Report(identity()?)),
        }
    }

    fn presence(&self) -> SourcePresence {
        match &self.source {
            Some(_) => SourcePresence::Present,
            None if self.is_absent => SourcePresence::Absent,
            None => SourcePresence::Unknown,
        }
    }

    fn take_configuration(&mut self, in_force: &InForce) -> bool {
        let new = in_force.configuration.clone();
        let pair = self.configuration.as_ref().zip(new.as_ref());
        let same = pair.map_or(self.configuration.is_none() && new.is_none(), |(a, b)| {
            Arc::ptr_eq(a, b)
        });
        self.configuration = new;
        !same
    }

    fn take_source(&mut self, in_force: &InForce) -> bool {
        let new = in_force.pull_secret.content.clone();
        let pair = self.source.as_ref().zip(new.as_ref());
        let same = pair.map_or(self.source.is_none() && new.is_none(), |(a, b)| {
            Arc::ptr_eq(&a.content, b)
        });
        if !same {
            self.source = new.map(|content| {
                let digest = Digest::of(&content.docker_config);
                Arc::new(Source { content, digest })
            });
        }
        let was_absent = std::mem::replace(&mut self.is_absent, in_force.lacks_pull_secret());
        !same || was_absent != self.is_absent
    }
}
