//! The features `set-fips-mode` and `set-landscape`: set variables to one value in every container and init container.
//!
//! An entry with another value or with `valueFrom` is replaced in place. A container uses the last entry of a name,
//! so every entry of the name is checked, not only the first.

use api::{Feature, FeatureSet};

use super::entry::Entry;
use super::patch::{PatchWriter, Path, Value};
use super::pod::{self, Placed, Spec};
use super::{Configuration, Finding, Reason};

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
    patch: &mut PatchWriter,
    findings: &mut Vec<Finding<'a>>,
) {
    let all = configuration.variables();
    let known = all.iter().any(|it| it.feature == Feature::Landscape);
    if enabled.contains(Feature::Landscape) && !known {
        findings.push(Finding::new(
            Feature::Landscape,
            Reason::LandscapeNotConfigured,
        ));
    }
    let mut missing: Vec<&Entry> = Vec::with_capacity(all.len());
    for placed in spec.started() {
        if patch.is_too_large() {
            return;
        }
        missing.clear();
        for variable in all.iter().filter(|it| enabled.contains(it.feature)) {
            let reason = settle(placed, variable, patch);
            if matches!(reason, Reason::EnvVarAdded { .. }) {
                missing.push(&variable.entry);
            }
            findings.push(Finding::new(variable.feature, reason));
        }
        append(placed, &missing, patch);
    }
}

/// Replaces existing entries that differ. Returns the reason, which shows whether an entry is missing.
fn settle<'a>(placed: Placed<'a, '_>, wanted: &'a Variable, patch: &mut PatchWriter) -> Reason<'a> {
    let container = &*placed.container.name;
    let variable = &*wanted.name;
    let mut present = false;
    let mut replaced = false;
    let env = placed.container.env.as_deref().unwrap_or_default();
    for (index, found) in env.iter().enumerate() {
        if *found.name != *variable {
            continue;
        }
        present = true;
        if !is_set(found, &wanted.value) {
            replaced = true;
            let entry = Path::EnvEntry(placed.into(), index);
            patch.replace(entry, Value::Entry(&wanted.entry));
        }
    }
    match (present, replaced) {
        (_, true) => Reason::EnvVarReplaced {
            container,
            variable,
        },
        (true, false) => Reason::EnvVarAlreadySet {
            container,
            variable,
        },
        (false, false) => Reason::EnvVarAdded {
            container,
            variable,
        },
    }
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
