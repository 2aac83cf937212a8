//! The features `set-fips-mode` and `set-landscape`: set variables to one value in every container and init container.
//!
//! An entry with another value or with `valueFrom` is replaced in place. A container uses the last entry of a name,
//! so every entry of the name is checked, not only the first.

use api::{Feature, FeatureSet};

use super::decision::Draft;
use super::entry::Entry;
use super::patch::{PatchWriter, Path, Value};
use super::pod::{self, Placed, Spec};
use super::{Configuration, Reason};

/// A variable that a feature sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) feature: Feature,
    pub(super) name: String,
    pub(super) value: String,
    entry: Entry,
}

impl Variable {
    pub(super) fn new(feature: Feature, name: String, value: &str) -> Self {
        Self {
            feature,
            entry: Entry::variable(&name, value),
            name,
            value: value.to_owned(),
        }
    }
}

/// Sets the variables of the enabled features.
pub(super) fn set<'a>(
    configuration: &'a Configuration,
    enabled: FeatureSet,
    spec: &'a Spec<'a>,
    draft: &mut Draft<'a>,
) {
    let all = configuration.variables();
    let known = all.iter().any(|it| it.feature == Feature::Landscape);
    if enabled.contains(Feature::Landscape) && !known {
        draft.report(Feature::Landscape, Reason::LandscapeNotConfigured);
    }
    let mut missing: Vec<&Entry> = Vec::with_capacity(all.len());
    for placed in spec.started() {
        if draft.patch.is_too_large() {
            return;
        }
        missing.clear();
        for variable in all.iter().filter(|it| enabled.contains(it.feature)) {
            let reason = settle(placed, variable, &mut draft.patch);
            if matches!(reason, Reason::EnvVarAdded { .. }) {
                missing.push(&variable.entry);
            }
            draft.report(variable.feature, reason);
        }
        append(placed, &missing, &mut draft.patch);
    }
}

/// Replaces existing entries that differ. Returns the reason, which shows whether an entry is missing.
fn settle<'a>(placed: Placed<'a, '_>, wanted: &'a Variable, patch: &mut PatchWriter) -> Reason<'a> {
    let container = &*placed.container.name;
    let variable = &*wanted.name;
    let mut reason = Reason::EnvVarAdded {
        container,
        variable,
    };
    let env = placed.container.env.iter().flatten().enumerate();
    for (index, found) in env.filter(|(_, it)| *it.name == *variable) {
        if !is_set(found, &wanted.value) {
            let entry = Path::EnvEntry(placed.into(), index);
            patch.replace(entry, Value::Entry(&wanted.entry));
            reason = Reason::EnvVarReplaced {
                container,
                variable,
            };
        } else if matches!(reason, Reason::EnvVarAdded { .. }) {
            reason = Reason::EnvVarAlreadySet {
                container,
                variable,
            };
        }
    }
    reason
}

fn is_set(found: &pod::Variable<'_>, value: &str) -> bool {
    found.value_from.is_none() && found.value.as_deref() == Some(value)
}

fn append(placed: Placed<'_, '_>, missing: &[&Entry], patch: &mut PatchWriter) {
    match (&placed.container.env, missing) {
        (_, []) => {}
        (None, missing) => patch.add(Path::Env(placed.into()), Value::List(missing)),
        (Some(_), missing) => {
            for entry in missing {
                patch.add(Path::EnvEnd(placed.into()), Value::Entry(entry));
            }
        }
    }
}
