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

impl Edit<'_> {
    fn object(&self) -> Result<Value, Refusal> {
        let parsed = serde_json::from_slice(self.body);
        parsed.map_err(|error| Refusal::bad_request(error.to_string()))
    }
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
        // Most bodies name neither, and parsing costs. What cannot be read is rejected later, with the right words.
        let text = std::str::from_utf8(body).unwrap_or_default();
        if text.contains("resourceVersion") || text.contains("uid") {
            let body: Value = serde_json::from_str(text).unwrap_or_default();
            inner.expect(target, &body["metadata"])?;
        }
        let memo = &self.common.memo;
        let state = memo.apply(target, live.as_ref(), body, applier)?;
        let written = self.put_state(&mut inner, &key, live.as_deref(), state);
        if let Some(stored) = inner.objects.get_mut(&key) {
            stored.idle_applies += u32::from(!written.changed);
        }
        Ok(written)
    }

    /// Stores the next state of an object, and answers.
    fn put_state(
        &self,
        inner: &mut Inner,
        key: &Key,
        live: Option<&State>,
        state: Arc<State>,
    ) -> Written {
        let changed = live.is_none_or(|live| live.digest != state.digest);
        let status = live.map_or(StatusCode::CREATED, |_| StatusCode::OK);
        self.store(inner, key, state, changed);
        self.written(inner, key, status, changed)
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
        let object = edit.object()?;
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
        inner.expect(target, &object["metadata"])?;
        let key = target.key();
        let live = inner.live(&key);
        let state = edited(target, live.as_deref(), object, manager)?;
        Ok(self.put_state(inner, &key, live.as_deref(), Arc::new(state)))
    }

    /// POST of an object to its collection.
    pub(super) fn create(&self, target: &Target, edit: Edit<'_>) -> Result<Written, Refusal> {
        let mut object = edit.object()?;
        let mut inner = self.inner();
        let metadata = &mut object["metadata"];
        let prefix = metadata["generateName"].as_str();
        if let Some(prefix) = prefix.filter(|_| metadata["name"].is_null()) {
            metadata["name"] = json!(format!("{prefix}{:05}", inner.created));
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
        Ok(self.put_state(&mut inner, &key, None, Arc::new(state)))
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
        let stored = inner.objects.get_mut(&key);
        let stored = stored.filter(|it| it.deleted.is_none());
        let first = stored.is_some();
        if let Some(stored) = stored {
            stored.deleted = Some(self.common.now());
            stored.generation += u32::from(key.kind.generation);
        }
        self.store(&mut inner, &key, Arc::new(State::new(&owned)), first);
        Ok(self.written(&mut inner, &key, StatusCode::OK, first))
    }

    /// Deletes what is in a namespace; whether finalizers keep some of it.
    fn empty(&self, inner: &mut Inner, namespace: &str) -> bool {
        let now = self.common.now();
        let content = inner.inside(namespace).map(|(key, _)| key.clone());
        let content: Vec<Key> = content.collect();
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
        let (kind, namespace, name) = (target.kind, &target.namespace, &target.name);
        if !is_new || !kind.namespaced {
            return Ok(());
        }
        let home = self.namespace_key(namespace);
        let stored = home.as_ref().and_then(|home| self.objects.get(home));
        let (Some(_), Some(stored)) = (&home, stored.filter(|it| it.state.is_some())) else {
            let kind = home.map_or(kind, |home| home.kind);
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
    fn expect(&self, target: &Target, metadata: &Value) -> Result<(), Refusal> {
        let stored = self.objects.get(&target.key());
        let Some(stored) = stored.filter(|it| it.state.is_some()) else {
            return Ok(());
        };
        let version = metadata["resourceVersion"].as_str();
        let is_other = |it: &str| !it.is_empty() && it != stored.version.to_string();
        if version.is_some_and(is_other) {
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
