//! The objects of an API server, their versions, and what happened to them.
//!
//! Invariant: every change has a version and is in the history, as in a real one; what is refused changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::wire::Query;

/// Plural and name; one namespace is enough.
pub(in crate::bootstrapper) type Key = (String, String);

pub(in crate::bootstrapper) fn key(plural: &str, name: &str) -> Key {
    (plural.to_owned(), name.to_owned())
}

/// See the module.
pub(in crate::bootstrapper) struct Store {
    /// The only one there is.
    pub(in crate::bootstrapper) namespace: &'static str,
    /// An annotation that an admission plugin takes away from everything that is patched.
    pub(in crate::bootstrapper) stripped: Option<&'static str>,
    version: u64,
    objects: BTreeMap<Key, Value>,
    /// A name that is empty stands for all objects of the kind.
    history: Vec<(u64, Key, Value)>,
}

impl Store {
    pub(in crate::bootstrapper) fn new(namespace: &'static str) -> Self {
        Self {
            namespace,
            stripped: None,
            version: 100,
            objects: BTreeMap::new(),
            history: Vec::new(),
        }
    }

    pub(in crate::bootstrapper) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    /// Creates or replaces an object, whatever it says of itself.
    pub(in crate::bootstrapper) fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        let before = self.objects.get(&key);
        let generation = before.map_or(1, |before| {
            let changed = before["spec"] != object["spec"]
                || before["metadata"]["deletionTimestamp"]
                    != object["metadata"]["deletionTimestamp"];
            before["metadata"]["generation"].as_u64().unwrap() + u64::from(changed)
        });
        let (event, uid) = match before {
            Some(before) => ("MODIFIED", before["metadata"]["uid"].clone()),
            None => ("ADDED", json!(format!("uid-{}", self.version))),
        };
        object["metadata"]["uid"] = uid;
        object["metadata"]["generation"] = json!(generation);
        object["metadata"]["namespace"] = json!(self.namespace);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        self.note(key, event, &object);
        object
    }

    /// Takes an object away, finalizers or not.
    pub(in crate::bootstrapper) fn remove(&mut self, key: &Key) -> Value {
        let mut object = self.objects.remove(key).unwrap();
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.note(key.clone(), "DELETED", &object);
        object
    }

    pub(in crate::bootstrapper) fn create(
        &mut self,
        key: Key,
        object: Value,
    ) -> Result<Value, u16> {
        if self.objects.contains_key(&key) {
            return Err(409);
        }
        Ok(self.store(key, object))
    }

    pub(in crate::bootstrapper) fn replace(
        &mut self,
        key: Key,
        object: Value,
    ) -> Result<Value, u16> {
        let stored = self.objects.get(&key).ok_or(404_u16)?;
        if object["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
            return Err(409);
        }
        Ok(self.store(key, object))
    }

    /// RFC 7386, with the optimistic lock of an API server: a version in the patch must be the stored one.
    pub(in crate::bootstrapper) fn patch(
        &mut self,
        key: &Key,
        patch: &Value,
    ) -> Result<Value, u16> {
        let stored = self.objects.get(key).ok_or(404_u16)?;
        let expected = &patch["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != stored["metadata"]["resourceVersion"] {
            return Err(409);
        }
        let mut merged = stored.clone();
        json_patch::merge(&mut merged, patch);
        if let Some(name) = self.stripped
            && let Some(annotations) = merged["metadata"]["annotations"].as_object_mut()
        {
            annotations.remove(name);
        }
        Ok(self.update(key, merged))
    }

    /// Server-side apply by the only one who ever applies.
    pub(in crate::bootstrapper) fn apply(&mut self, key: Key, object: Value) -> Value {
        match self.objects.get(&key).cloned() {
            None => self.store(key, object),
            Some(mut stored) => {
                json_patch::merge(&mut stored, &object);
                self.update(&key, stored)
            }
        }
    }

    /// The same of a status.
    pub(in crate::bootstrapper) fn status(
        &mut self,
        key: &Key,
        body: &Value,
    ) -> Result<Value, u16> {
        let mut stored = self.objects.get(key).cloned().ok_or(404_u16)?;
        let uid = &body["metadata"]["uid"];
        if !uid.is_null() && *uid != stored["metadata"]["uid"] {
            return Err(409);
        }
        stored["status"] = body["status"].clone();
        Ok(self.update(key, stored))
    }

    /// Finalizers hold it.
    pub(in crate::bootstrapper) fn delete(&mut self, key: &Key) -> Result<Value, u16> {
        let mut stored = self.objects.get(key).cloned().ok_or(404_u16)?;
        if finalizers(&stored) == 0 {
            return Ok(self.remove(key));
        }
        if stored["metadata"]["deletionTimestamp"].is_null() {
            stored["metadata"]["deletionTimestamp"] = json!(jiff::Timestamp::now().to_string());
        }
        Ok(self.update(key, stored))
    }

    /// The same if the object is the one that is meant.
    pub(in crate::bootstrapper) fn delete_as(
        &mut self,
        key: &Key,
        options: &Value,
    ) -> Result<Value, u16> {
        let stored = self.objects.get(key).ok_or(404_u16)?;
        if options["preconditions"]["uid"] != stored["metadata"]["uid"] {
            return Err(409);
        }
        self.delete(key)
    }

    /// Objects of a kind change without events, and then every watch of it has expired.
    pub(in crate::bootstrapper) fn behind_the_watch(
        &mut self,
        plural: &str,
        change: impl FnOnce(&mut Self),
    ) {
        let kept = self.history.len();
        change(self);
        self.history.truncate(kept);
        self.version += 1;
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old", "reason": "Expired",
            "code": 410,
        });
        self.note(key(plural, ""), "ERROR", &status);
    }

    /// What a watch that has seen `since` is told, and what it has seen then.
    pub(in crate::bootstrapper) fn after(
        &self,
        plural: &str,
        query: &Query,
        since: u64,
    ) -> (u64, String) {
        let start = self
            .history
            .partition_point(|(version, ..)| *version <= since);
        let new = self.history[start..].iter().filter(|(_, key, line)| {
            let all = key.0 == plural && key.1.is_empty();
            all || query.wants(plural, key, &line["object"])
        });
        let mut text = String::new();
        for (.., line) in new {
            writeln!(text, "{line}").unwrap();
        }
        (self.version, text)
    }

    /// All objects of a kind.
    pub(in crate::bootstrapper) fn list_all(&self, plural: &str) -> Vec<Value> {
        let of_kind = self.objects.iter().filter(|(key, _)| key.0 == plural);
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    /// At most so many in one page, whatever a client would take.
    pub(in crate::bootstrapper) fn list(&self, plural: &str, query: &Query, page: usize) -> Value {
        let wanted = self
            .objects
            .iter()
            .filter(|(key, object)| query.wants(plural, key, object));
        let mut items: Vec<&Value> = wanted.map(|(_, object)| object).skip(query.from).collect();
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if items.len() > page {
            items.truncate(page);
            metadata["continue"] = json!((query.from + page).to_string());
        }
        json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items})
    }

    /// What an API server does after every change.
    fn update(&mut self, key: &Key, object: Value) -> Value {
        if self.objects[key] == object {
            return object;
        }
        let stored = self.store(key.clone(), object);
        let leaves = !stored["metadata"]["deletionTimestamp"].is_null();
        if leaves && finalizers(&stored) == 0 {
            return self.remove(key);
        }
        stored
    }

    fn note(&mut self, key: Key, event: &str, object: &Value) {
        let line = json!({"type": event, "object": object});
        self.history.push((self.version, key, line));
    }
}

fn finalizers(object: &Value) -> usize {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.map_or(0, Vec::len)
}
