//! Writes: server-side apply, patches, replacement, creation and deletion.

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::change::edited;
use super::kinds::Handling;
use super::object::{Key, State, Stored};
use super::request::{Query, Target};
use super::status::Refusal;
use super::store::{Inner, Store};
use super::validate;

/// Result of a write: status code, object, and whether the object changed.
pub(super) struct Written {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    pub(super) changed: bool,
}

type Outcome = Result<Written, Refusal>;

impl Store {
    pub(super) fn apply(&self, target: &Target, query: &Query, body: &[u8]) -> Outcome {
        if query.field_manager.is_empty() {
            return Err(no_manager());
        }
        let mut inner = self.inner();
        let live = inner.live(target);
        if live.is_none() && target.status {
            return Err(Refusal::not_found(target));
        }
        if live.is_none() && !inner.behavior.rights.allow_creation(target) {
            let resource = target.resource();
            return Err(Refusal::not_allowed("create", &resource, target));
        }
        inner.admit(target, live.is_none())?;
        // Most bodies contain neither field, and parsing is expensive. A body that cannot be parsed is rejected later, with the
        // correct message.
        let text = std::str::from_utf8(body).unwrap_or_default();
        if text.contains("resourceVersion") || text.contains("uid") {
            let body: Value = serde_json::from_str(text).unwrap_or_default();
            inner.expect(target, &body["metadata"])?;
        }
        let writer = (query.field_manager.as_str(), query.force);
        let memo = &self.common.memo;
        let state = memo.apply(target, live.as_ref(), body, writer)?;
        let written = self.put_state(&mut inner, target, state, None);
        if let Some(stored) = inner.objects.get_mut(&target.key) {
            stored.idle_applies += u32::from(!written.changed);
        }
        self.add_ca_bundles(&mut inner, target)?;
        Ok(written)
    }

    /// Writes the `caBundle` into a webhook configuration, as the running webhook does.
    fn add_ca_bundles(&self, inner: &mut Inner, target: &Target) -> Result<(), Refusal> {
        let is_configuration = target.kind.resource == "mutatingwebhookconfigurations";
        let live = inner.live(target).filter(|_| is_configuration);
        let (Some(live), Some(bundle)) = (live, inner.behavior.ca_bundle) else {
            return Ok(());
        };
        let mut object = live.object.clone();
        let entries = object.get_mut("webhooks").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            let client = &mut entry["clientConfig"];
            if client["service"].is_object() && client["caBundle"].is_null() {
                client["caBundle"] = json!(bundle);
            }
        }
        if object != live.object {
            let state = edited(target, Some(&live), object, "rt-bootstrapper-webhook")?;
            self.put_state(inner, target, Arc::new(state), None);
        }
        Ok(())
    }

    /// Stores the next state of an object, which may be deleted at time `now`, and returns the response. An object that is
    /// being deleted and has no finalizer is removed.
    fn put_state(
        &self,
        inner: &mut Inner,
        key: &Key,
        state: Arc<State>,
        now: Option<Timestamp>,
    ) -> Written {
        let live = inner.live(key);
        let deleted = inner.objects.get(key).and_then(|it| it.deleted);
        let changed = self.store(inner, key, state, deleted.or(now));
        let body = self.render(inner, key).unwrap_or_default();
        if inner.is_released(key) {
            self.drop_object(inner, key);
        }
        Written {
            status: live.map_or(StatusCode::CREATED, |_| StatusCode::OK),
            body,
            changed,
        }
    }

    /// Applies a merge patch or a JSON patch.
    pub(super) fn patch(
        &self,
        target: &Target,
        merge: bool,
        body: &[u8],
        manager: &str,
    ) -> Outcome {
        let decoding = |error| Refusal::bad_request(format!("error decoding patch: {error}"));
        let mut inner = self.inner();
        let live = self.render(&inner, target);
        let mut object = live.ok_or_else(|| Refusal::not_found(target))?;
        if merge {
            let patch: Value = serde_json::from_slice(body).map_err(decoding)?;
            json_patch::merge(&mut object, &patch);
        } else {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(decoding)?;
            let patch = without_absent(patch, &object);
            json_patch::patch(&mut object, &patch).map_err(|it| Refusal::unprocessable(&it))?;
        }
        self.replaced(&mut inner, target, object, manager)
    }

    pub(super) fn replace(&self, target: &Target, object: Value, manager: &str) -> Outcome {
        validate::shape(target, &object)?;
        let mut inner = self.inner();
        if inner.live(target).is_none() {
            return Err(Refusal::not_found(target));
        }
        let is_custom = target.kind.handling == Handling::Custom;
        if is_custom && object["metadata"]["resourceVersion"].is_null() {
            let message = "Invalid value: 0: must be specified for an update".to_owned();
            let field = "metadata.resourceVersion".to_owned();
            let complaint = (field, "FieldValueInvalid", message);
            return Err(Refusal::invalid(target, &[complaint]));
        }
        self.replaced(&mut inner, target, object, manager)
    }

    fn replaced(
        &self,
        inner: &mut Inner,
        target: &Target,
        mut object: Value,
        manager: &str,
    ) -> Outcome {
        if let Some(annotation) = inner.behavior.stripped
            && let Some(annotations) = object["metadata"]["annotations"].as_object_mut()
        {
            annotations.remove(annotation);
        }
        inner.expect(target, &object["metadata"])?;
        let state = edited(target, inner.live(target).as_deref(), object, manager)?;
        Ok(self.put_state(inner, target, Arc::new(state), None))
    }

    /// Creates an object (POST of a collection). A dry run stores nothing.
    pub(super) fn create(
        &self,
        target: &Target,
        mut object: Value,
        manager: &str,
        is_dry_run: bool,
    ) -> Outcome {
        let mut inner = self.inner();
        let metadata = &mut object["metadata"];
        let prefix = metadata["generateName"].as_str();
        if let Some(prefix) = prefix.filter(|_| metadata["name"].is_null()) {
            metadata["name"] = json!(format!("{prefix}{:05}", inner.created));
        }
        let mut target = target.clone();
        target.key.name = metadata["name"].as_str().unwrap_or_default().into();
        if let Some(field) = inner.behavior.dropped_projection {
            drop_projection(&mut object, field);
        }
        validate::shape(&target, &object)?;
        inner.admit(&target, true)?;
        if inner.live(&target).is_some() {
            return Err(Refusal::already_exists(&target));
        }
        let state = edited(&target, None, object, manager)?;
        if is_dry_run {
            // The response contains a UID, although the object does not exist.
            let mut body = state.object;
            if let Some((annotation, value)) = &inner.behavior.added {
                body["metadata"]["annotations"][annotation] = json!(value);
            }
            body["metadata"]["uid"] = json!(format!("dry-run-{}", inner.created));
            return Ok(Written {
                status: StatusCode::CREATED,
                body,
                changed: false,
            });
        }
        let written = self.put_state(&mut inner, &target, Arc::new(state), None);
        self.add_ca_bundles(&mut inner, &target)?;
        Ok(written)
    }

    /// Deletes one object. An object with finalizers stays.
    pub(super) fn delete(&self, key: &Key, options: &[u8]) -> Outcome {
        let options = serde_json::from_slice(options).unwrap_or_default();
        self.delete_in(&mut self.inner(), key, &options)
    }

    fn delete_in(&self, inner: &mut Inner, key: &Key, options: &Value) -> Outcome {
        let (Some(live), Some(stored)) = (inner.live(key), inner.objects.get(key)) else {
            return Err(Refusal::not_found(key));
        };
        expected(key, stored, &options["preconditions"])?;
        let uid = Arc::clone(&stored.uid);
        let foreground = options["propagationPolicy"] == "Foreground" && inner.behavior.dependents;
        let holds = key.kind.resource == "namespaces" && self.empty(inner, &key.name);
        if !live.is_held() && !foreground && !holds {
            self.drop_object(inner, key);
            return Ok(Written {
                status: StatusCode::OK,
                body: json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {
                        "name": &*key.name, "group": key.kind.group(),
                        "kind": key.kind.resource, "uid": &*uid,
                    },
                }),
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
        let now = self.common.time(self.common.elapsed());
        Ok(self.put_state(inner, key, Arc::new(State::new(&owned)), Some(now)))
    }

    /// Deletes all objects of a namespace. Returns whether some stay because of finalizers.
    fn empty(&self, inner: &mut Inner, namespace: &str) -> bool {
        let content = inner.inside(namespace).map(|(key, _)| key.clone());
        let content: Vec<Key> = content.collect();
        for key in &content {
            // Each object exists, and there are no preconditions.
            let _ = self.delete_in(inner, key, &Value::Null);
        }
        inner.inside(namespace).next().is_some()
    }
}

impl Inner {
    /// Checks whether a write is permitted in its namespace.
    fn admit(&self, key: &Key, is_new: bool) -> Result<(), Refusal> {
        if !is_new || !key.kind.namespaced {
            return Ok(());
        }
        let home = self.namespace_key(&key.namespace);
        let home = home.unwrap_or_else(|| Key {
            name: Arc::clone(&key.namespace),
            ..key.clone()
        });
        let stored = self.objects.get(&home).filter(|it| it.state.is_some());
        let stored = stored.ok_or_else(|| Refusal::not_found(&home))?;
        if stored.deleted.is_some() {
            return Err(Refusal::terminating(key));
        }
        if self.behavior.quota_exceeded {
            let why = "exceeded quota: all, requested: count=1, used: count=1, limited: count=1";
            return Err(Refusal::forbidden(key, why));
        }
        Ok(())
    }

    /// Checks that UID and resource version of a body are those of the object.
    fn expect(&self, key: &Key, metadata: &Value) -> Result<(), Refusal> {
        let stored = self.objects.get(key);
        let Some(stored) = stored.filter(|it| it.state.is_some()) else {
            return Ok(());
        };
        let version = metadata["resourceVersion"].as_str();
        let is_other = |it: &str| !it.is_empty() && it != stored.version.to_string();
        if version.is_some_and(is_other) {
            return Err(Refusal::modified(key));
        }
        expected(key, stored, &json!({"uid": metadata["uid"]}))
    }
}

/// Checks the preconditions of a client.
fn expected(key: &Key, stored: &Stored, preconditions: &Value) -> Result<(), Refusal> {
    let own = [
        ("uid", "UID", stored.uid.to_string()),
        (
            "resourceVersion",
            "ResourceVersion",
            stored.version.to_string(),
        ),
    ];
    for (field, word, own) in own {
        let wanted = preconditions[field].as_str().filter(|it| !it.is_empty());
        if let Some(wanted) = wanted.filter(|wanted| *wanted != own) {
            let why = format!(
                "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {own}"
            );
            return Err(Refusal::conflict(key, &why));
        }
    }
    Ok(())
}

fn no_manager() -> Refusal {
    let text = "Required value: is required for apply patch";
    let message = format!("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: {text}");
    let complaint = (
        "fieldManager".to_owned(),
        "FieldValueRequired",
        text.to_owned(),
    );
    Refusal::new(422, "Invalid", message).because(&[complaint])
}

/// Removes tests that an absent member is null, because such a test succeeds at an API server.
fn without_absent(mut patch: json_patch::Patch, object: &Value) -> json_patch::Patch {
    patch.0.retain(|operation| {
        let json_patch::PatchOperation::Test(test) = operation else {
            return true;
        };
        let pointer = test.path.as_str();
        let parent = pointer.rsplit_once('/').map(|(parent, _)| parent);
        let has_parent = parent.is_some_and(|it| object.pointer(it).is_some_and(Value::is_object));
        !(test.value.is_null() && has_parent && object.pointer(pointer).is_none())
    });
    patch
}

/// Removes a field from the sources of projected volumes; the empty sources stay.
fn drop_projection(pod: &mut Value, field: &str) {
    let volumes = pod["spec"]["volumes"].as_array_mut().into_iter().flatten();
    for volume in volumes {
        let sources = volume["projected"]["sources"].as_array_mut();
        for source in sources.into_iter().flatten() {
            source.as_object_mut().map(|it| it.remove(field));
        }
    }
}
