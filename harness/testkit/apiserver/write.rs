//! Writes: server-side apply, patches, replacement, creation and deletion.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::behaviour::Creation;
use super::change::edited;
use super::merge::Applier;
use super::object::{Key, State, Stored};
use super::request::{Query, Target};
use super::status::Refusal;
use super::store::{Inner, Store};
use super::validate;

/// A write that was carried out: status and object, and whether anything changed.
pub(super) struct Written {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    pub(super) changed: bool,
}

/// A write that is no apply: body and writer.
#[derive(Clone, Copy)]
pub(super) struct Edit<'a> {
    pub(super) body: &'a [u8],
    pub(super) manager: &'a str,
}

impl Store {
    /// Server-side apply.
    pub(super) fn apply(
        &self,
        target: &Target,
        query: &Query,
        body: &[u8],
    ) -> Result<Written, Refusal> {
        let manager = query.field_manager.as_deref().ok_or_else(no_manager)?;
        let api_version = target.kind.api_version();
        let applier = Applier {
            name: manager,
            api_version: &api_version,
            status: target.status,
            custom: target.kind.custom,
            force: query.force,
        };
        let mut inner = self.inner();
        let key = target.key();
        let live = inner.live(&key);
        if live.is_none() && target.status {
            return Err(Refusal::not_found(target.kind, &target.name));
        }
        if live.is_none() && !inner.behaviour.rights.allow_creation(target) {
            return Err(Refusal::not_allowed("create", target));
        }
        inner.admit(target, live.is_none())?;
        inner.expect(target, body)?;
        let state = self
            .common
            .memo
            .apply(target, live.as_ref(), body, applier)?;
        let changed = live.as_ref().is_none_or(|live| live.digest != state.digest);
        let status = if live.is_none() {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        self.store(&mut inner, &key, state, changed);
        if let Some(stored) = inner.objects.get_mut(&key) {
            stored.idle_applies += u32::from(!changed);
        }
        Ok(self.written(&mut inner, &key, status, changed))
    }

    /// JSON patch or merge patch.
    pub(super) fn patch(
        &self,
        target: &Target,
        merge: bool,
        edit: Edit<'_>,
    ) -> Result<Written, Refusal> {
        let decoding = |error| Refusal::bad_request(format!("error decoding patch: {error}"));
        let mut inner = self.inner();
        let live = self.render(&inner, &target.key());
        let mut object = live.ok_or_else(|| Refusal::not_found(target.kind, &target.name))?;
        if merge {
            let patch: Value = serde_json::from_slice(edit.body).map_err(decoding)?;
            json_patch::merge(&mut object, &patch);
        } else {
            let patch: json_patch::Patch = serde_json::from_slice(edit.body).map_err(decoding)?;
            json_patch::patch(&mut object, &patch)
                .map_err(|error| Refusal::unprocessable(&error.to_string()))?;
        }
        self.replaced(&mut inner, target, object, edit.manager)
    }

    /// PUT of an object.
    pub(super) fn replace(&self, target: &Target, edit: Edit<'_>) -> Result<Written, Refusal> {
        let object: Value = serde_json::from_slice(edit.body)
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        validate::shape(target, &object)?;
        let mut inner = self.inner();
        if inner.live(&target.key()).is_none() {
            return Err(Refusal::not_found(target.kind, &target.name));
        }
        if target.kind.custom && object["metadata"]["resourceVersion"].is_null() {
            let message = "Invalid value: 0: must be specified for an update".to_owned();
            let field = "metadata.resourceVersion".to_owned();
            let complaint = (field, "FieldValueInvalid", message);
            return Err(Refusal::invalid(target.kind, &target.name, &[complaint]));
        }
        self.replaced(&mut inner, target, object, edit.manager)
    }

    fn replaced(
        &self,
        inner: &mut Inner,
        target: &Target,
        mut object: Value,
        manager: &str,
    ) -> Result<Written, Refusal> {
        if let Some(annotation) = inner.behaviour.stripped
            && let Some(annotations) = object["metadata"]["annotations"].as_object_mut()
        {
            annotations.remove(annotation);
        }
        inner.admit(target, false)?;
        inner.expect(target, object.to_string().as_bytes())?;
        let key = target.key();
        let live = inner.live(&key);
        let state = edited(target, live.as_deref(), object, manager)?;
        let changed = live.is_none_or(|live| live.digest != state.digest);
        self.store(inner, &key, Arc::new(state), changed);
        Ok(self.written(inner, &key, StatusCode::OK, changed))
    }

    /// POST of an object to its collection.
    pub(super) fn create(&self, target: &Target, edit: Edit<'_>) -> Result<Written, Refusal> {
        let mut object: Value = serde_json::from_slice(edit.body)
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        let mut inner = self.inner();
        let generated = object
            .pointer("/metadata/generateName")
            .and_then(Value::as_str);
        if let Some(prefix) = generated.filter(|_| object["metadata"]["name"].is_null()) {
            let name = format!("{prefix}{:05}", inner.created);
            object["metadata"]["name"] = json!(name);
        }
        let mut target = target.clone();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        name.clone_into(&mut target.name);
        validate::shape(&target, &object)?;
        let key = target.key();
        inner.admit(&target, true)?;
        if inner.live(&key).is_some() {
            return Err(Refusal::already_exists(target.kind, &target.name));
        }
        let state = edited(&target, None, object, edit.manager)?;
        self.store(&mut inner, &key, Arc::new(state), true);
        Ok(self.written(&mut inner, &key, StatusCode::CREATED, true))
    }

    /// DELETE of one object. Finalizers keep it.
    pub(super) fn delete(&self, target: &Target, options: &[u8]) -> Result<Written, Refusal> {
        let mut inner = self.inner();
        let key = target.key();
        let (Some(live), Some(stored)) = (inner.live(&key), inner.objects.get(&key)) else {
            return Err(Refusal::not_found(target.kind, &target.name));
        };
        let options: Value = serde_json::from_slice(options).unwrap_or_default();
        expected(target, stored, &options["preconditions"])?;
        let uid = stored.uid.to_string();
        let foreground = options["propagationPolicy"] == "Foreground" && inner.behaviour.dependents;
        let holds = target.kind.resource == "namespaces" && self.empty(&mut inner, &target.name);
        if !live.is_held() && !foreground && !holds {
            self.drop_object(&mut inner, &key);
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {
                    "name": target.name, "group": target.kind.group,
                    "kind": target.kind.resource, "uid": uid,
                },
            });
            return Ok(Written {
                status: StatusCode::OK,
                body: status,
                changed: true,
            });
        }
        let mut owned = live.owned();
        if holds {
            owned.content["status"] = json!({"phase": "Terminating"});
        }
        if foreground {
            owned.content["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        }
        let first = inner
            .objects
            .get(&key)
            .is_some_and(|it| it.deleted.is_none());
        let now = self.common.now();
        if let Some(stored) = inner.objects.get_mut(&key).filter(|_| first) {
            stored.deleted = Some(now);
            stored.generation += u32::from(key.kind.generation);
        }
        self.store(&mut inner, &key, Arc::new(State::new(&owned)), first);
        Ok(self.written(&mut inner, &key, StatusCode::OK, first))
    }
}

impl Store {
    /// Deletes what is in a namespace; whether finalizers keep some of it.
    fn empty(&self, inner: &mut Inner, namespace: &str) -> bool {
        let now = self.common.now();
        let content: Vec<Key> = inner
            .inside(namespace)
            .map(|(key, _)| key.clone())
            .collect();
        let mut holds = false;
        for key in &content {
            let stored = inner.objects.get_mut(key);
            let held = |it: &&mut Stored| it.state.as_ref().is_some_and(|it| it.is_held());
            match stored.filter(held) {
                Some(stored) => {
                    stored.deleted.get_or_insert(now);
                    holds = true;
                }
                None => self.drop_object(inner, key),
            }
        }
        holds
    }
}

impl Inner {
    /// Whether a write may be carried out where it is meant.
    fn admit(&self, target: &Target, is_new: bool) -> Result<(), Refusal> {
        let Target {
            kind,
            namespace,
            name,
            ..
        } = target;
        if !is_new || !kind.namespaced {
            return Ok(());
        }
        let home = self.namespace_key(namespace);
        let stored = home.as_ref().and_then(|home| self.objects.get(home));
        let (Some(_), Some(stored)) = (&home, stored.filter(|it| it.state.is_some())) else {
            let kind = home.map_or(*kind, |home| home.kind);
            return Err(Refusal::not_found(kind, namespace));
        };
        if self.behaviour.creation == Creation::NamespaceTerminating || stored.deleted.is_some() {
            return Err(Refusal::terminating(kind, name, namespace));
        }
        if self.behaviour.creation == Creation::QuotaExceeded {
            let why = "exceeded quota: all, requested: count=1, used: count=1, limited: count=1";
            return Err(Refusal::forbidden(kind, name, why));
        }
        Ok(())
    }

    /// Whether uid and version that a body names are those of the object.
    fn expect(&self, target: &Target, body: &[u8]) -> Result<(), Refusal> {
        let Some(stored) = self
            .objects
            .get(&target.key())
            .filter(|it| it.state.is_some())
        else {
            return Ok(());
        };
        // Most bodies name neither, and parsing costs.
        let names = |word: &str| std::str::from_utf8(body).is_ok_and(|text| text.contains(word));
        if !names("resourceVersion") && !names("uid") {
            return Ok(());
        }
        // What cannot be read is rejected later, with the right words.
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let metadata = &body["metadata"];
        let version = metadata["resourceVersion"]
            .as_str()
            .filter(|it| !it.is_empty());
        if version.is_some_and(|it| it != stored.version.to_string()) {
            return Err(Refusal::modified(target.kind, &target.name));
        }
        expected(target, stored, &json!({"uid": metadata["uid"]}))
    }
}

/// Whether the object is the one that the client means.
fn expected(target: &Target, stored: &Stored, preconditions: &Value) -> Result<(), Refusal> {
    let (uid, version) = (stored.uid.to_string(), stored.version.to_string());
    let own = [
        ("uid", "UID", uid),
        ("resourceVersion", "ResourceVersion", version),
    ];
    for (field, word, own) in own {
        let wanted = preconditions[field].as_str().filter(|it| !it.is_empty());
        if let Some(wanted) = wanted.filter(|wanted| *wanted != own) {
            let why = format!(
                "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {own}"
            );
            return Err(Refusal::conflict(target.kind, &target.name, &why));
        }
    }
    Ok(())
}

fn no_manager() -> Refusal {
    let text = "Required value: is required for apply patch";
    let message = format!("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: {text}");
    let mut refusal = Refusal::new(422, "Invalid", message);
    let cause = json!({"reason": "FieldValueRequired", "message": text, "field": "fieldManager"});
    refusal.details = json!({ "causes": [cause] });
    refusal
}
