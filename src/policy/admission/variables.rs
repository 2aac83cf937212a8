//! Manipulation 3 and `set-landscape`: variables with one value in every container, init included.
//!
//! Present with another value or with `valueFrom` → replaced in place. The last entry of a name is the one that counts in
//! a container, so every entry of the name is looked at, not just the first.

use api::names::LANDSCAPE_VARIABLE;
use api::{Feature, FeatureSet};
use serde::Serialize;

use super::patch::{PatchWriter, Path};
use super::pod::{Placed, Spec, Variable};
use super::{Configuration, Finding, Reason};

#[derive(Clone, Copy, Serialize)]
struct Entry<'a> {
    name: &'a str,
    value: &'a str,
}

/// Sets what the enabled features ask for.
pub(super) fn set<'a>(
    configuration: &'a Configuration,
    enabled: FeatureSet,
    spec: &'a Spec<'a>,
    patch: &mut PatchWriter,
    findings: &mut Vec<Finding<'a>>,
) {
    let wanted = wanted(configuration, enabled);
    if enabled.contains(Feature::Landscape) && configuration.landscape().is_none() {
        findings.push(Finding::new(Feature::Landscape, Reason::LandscapeUnset));
    }
    let mut missing: Vec<Entry<'a>> = Vec::with_capacity(wanted.len());
    for placed in spec.started() {
        missing.clear();
        for (feature, entry) in &wanted {
            let reason = settle(placed, *entry, patch);
            if matches!(reason, Reason::VariableAdded { .. }) {
                missing.push(*entry);
            }
            findings.push(Finding::new(*feature, reason));
        }
        append(placed, &missing, patch);
    }
}

fn wanted(configuration: &Configuration, enabled: FeatureSet) -> Vec<(Feature, Entry<'_>)> {
    let mut wanted = Vec::new();
    if enabled.contains(Feature::FipsMode) {
        wanted.extend(configuration.fips_variables().iter().map(|name| {
            let entry = Entry {
                name,
                value: "true",
            };
            (Feature::FipsMode, entry)
        }));
    }
    if enabled.contains(Feature::Landscape)
        && let Some(value) = configuration.landscape()
    {
        let entry = Entry {
            name: LANDSCAPE_VARIABLE,
            value,
        };
        wanted.push((Feature::Landscape, entry));
    }
    wanted
}

/// Mends the entries that are there; says what is left to do.
fn settle<'a>(placed: Placed<'a, '_>, entry: Entry<'a>, patch: &mut PatchWriter) -> Reason<'a> {
    let container = &*placed.container.name;
    let variable = entry.name;
    let mut present = false;
    let mut replaced = false;
    let env = placed.container.env.as_deref().unwrap_or_default();
    for (index, found) in env.iter().enumerate() {
        if *found.name != *entry.name {
            continue;
        }
        present = true;
        if !is_set(found, entry.value) {
            replaced = true;
            patch.replace(Path::EnvEntry(placed.into(), index), &entry);
        }
    }
    match (present, replaced) {
        (_, true) => Reason::VariableReplaced {
            container,
            variable,
        },
        (true, false) => Reason::VariablePresent {
            container,
            variable,
        },
        (false, false) => Reason::VariableAdded {
            container,
            variable,
        },
    }
}

fn is_set(found: &Variable<'_>, value: &str) -> bool {
    found.value_from.is_none() && found.value.as_deref() == Some(value)
}

fn append(placed: Placed<'_, '_>, missing: &[Entry<'_>], patch: &mut PatchWriter) {
    match (&placed.container.env, missing) {
        (_, []) => {}
        (None, missing) => patch.add(Path::Env(placed.into()), &missing),
        (Some(_), missing) => {
            for entry in missing {
                patch.add(Path::EnvEnd(placed.into()), entry);
            }
        }
    }
}
