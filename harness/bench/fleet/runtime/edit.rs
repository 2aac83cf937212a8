//! Writes that are no apply: what an object becomes by them, and when they are not for this object.

use std::sync::Arc;

use api::names;
use serde_json::{Value, json};

use crate::fleet::kinds::{KINDS, Kind};
use crate::fleet::merge::{Applier, Owned, update};
use crate::fleet::object::{Key, State, Stored, managers_of, strip};
use crate::fleet::path::Target;
use crate::fleet::status::Refusal;
use crate::fleet::validate;

/// The Namespaces that a provisioned runtime comes with.
pub(in crate::fleet) fn founding() -> Vec<(Key, Arc<State>)> {
    ["default", "kube-system", names::SKR_NAMESPACE]
        .into_iter()
        .filter_map(|name| {
            let target = Target {
                kind: namespaces(),
                namespace: String::new(),
                name: name.to_owned(),
            };
            let object = json!({"metadata": {"name": name}});
            // Nothing about them can be refused.
            let state = edited(&target, None, object, "apiserver").ok()?;
            Some((target.key(), Arc::new(state)))
        })
        .collect()
}

/// What an object becomes by a write that is no apply.
pub(super) fn edited(
    target: &Target,
    live: Option<&State>,
    mut object: Value,
    manager: &str,
) -> Result<State, Refusal> {
    let api_version = target.kind.api_version();
    let writer = Applier {
        name: manager,
        api_version: &api_version,
        force: true,
    };
    let live = live.map(State::owned).unwrap_or_default();
    let managers = managers_of(&object);
    strip(target.kind, &mut object);
    validate::types(target, &object)?;
    validate::defaults(target, &mut object);
    validate::object(target, &live.content, &object)?;
    let before = Owned {
        content: live.content,
        managers,
    };
    let mut next = update(&before, object, writer);
    validate::settle(target, &mut next.content);
    Ok(State::new(&next))
}

/// Whether the object is the one that the client means to delete.
pub(super) fn expected(target: &Target, stored: &Stored, options: &[u8]) -> Result<(), Refusal> {
    let options: Value = serde_json::from_slice(options).unwrap_or_default();
    let own = [
        ("uid", "UID", stored.uid.to_string()),
        (
            "resourceVersion",
            "ResourceVersion",
            stored.version.to_string(),
        ),
    ];
    for (field, word, own) in own {
        let wanted = options["preconditions"][field].as_str();
        if let Some(wanted) = wanted.filter(|wanted| *wanted != own) {
            let why = format!("{word} in precondition: {wanted}, {word} in object meta: {own}");
            return Err(Refusal::precondition(target.kind, &target.name, &why));
        }
    }
    Ok(())
}

pub(super) fn no_manager() -> Refusal {
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    let mut refusal = Refusal::new(422, "Invalid", message);
    refusal.details = json!({"causes": [{
        "reason": "FieldValueRequired",
        "message": "Required value: is required for apply patch",
        "field": "fieldManager",
    }]});
    refusal
}

pub(super) fn namespaces() -> &'static Kind {
    let found = KINDS.iter().find(|kind| kind.resource == "namespaces");
    found.unwrap_or(&KINDS[0])
}
