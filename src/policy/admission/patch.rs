//! The patch writer: JSON Patch, `add` and `replace` only, on the few paths that [`Path`] can name.
//!
//! Written by hand because a diff is positional and a typed round trip loses unknown fields
//! (reference rust-ecosystem §3.4). Nothing here can remove or move a value.

use serde::Serialize;

use super::pod::{ContainerList, Placed};

/// A finished JSON Patch document, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    json: Vec<u8>,
}

impl Patch {
    /// The document; `None` if there is nothing to change.
    #[must_use]
    pub fn json(&self) -> Option<&[u8]> {
        (!self.json.is_empty()).then_some(self.json.as_slice())
    }

    /// Whether there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.json.is_empty()
    }
}

/// Where a container stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    list: ContainerList,
    index: usize,
}

impl From<Placed<'_, '_>> for Place {
    fn from(placed: Placed<'_, '_>) -> Self {
        Self {
            list: placed.list,
            index: placed.index,
        }
    }
}

/// The only paths that are ever written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// A container's image.
    Image(Place),
    /// A container's whole environment, which was absent.
    Env(Place),
    /// One entry of the environment, in place.
    EnvEntry(Place, usize),
    /// The end of the environment.
    EnvEnd(Place),
    /// A container's whole list of mounts, which was absent.
    Mounts(Place),
    /// The end of a container's mounts.
    MountsEnd(Place),
    /// The Pod's volumes, which were absent.
    Volumes,
    /// The end of the Pod's volumes.
    VolumesEnd,
    /// The Pod's pull Secrets, which were absent.
    PullSecrets,
    /// The end of the Pod's pull Secrets.
    PullSecretsEnd,
    /// The Pod's annotations, which were absent.
    Annotations,
    /// One annotation, by its key.
    Annotation(&'a str),
}

/// Writes a [`Patch`], operation by operation.
#[derive(Debug, Default)]
pub(super) struct PatchWriter {
    json: Vec<u8>,
}

impl PatchWriter {
    pub(super) fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    pub(super) fn add(&mut self, path: Path<'_>, value: &impl Serialize) {
        self.operation("add", path, value);
    }

    pub(super) fn replace(&mut self, path: Path<'_>, value: &impl Serialize) {
        self.operation("replace", path, value);
    }

    pub(super) fn finish(mut self) -> Patch {
        if !self.json.is_empty() {
            self.json.push(b']');
        }
        Patch { json: self.json }
    }

    fn operation(&mut self, name: &str, path: Path<'_>, value: &impl Serialize) {
        if self.json.is_empty() {
            // Enough for all features on a Pod of three containers, so that it grows once.
            self.json.reserve(2048);
        }
        let before = self.json.len();
        self.json.push(if before == 0 { b'[' } else { b',' });
        self.text("{\"op\":\"");
        self.text(name);
        self.text("\",\"path\":\"");
        self.pointer(path);
        self.text("\",\"value\":");
        if serde_json::to_writer(&mut self.json, value).is_ok() {
            self.json.push(b'}');
        } else {
            // Our values are plain strings, lists and maps of them: writing one cannot fail. If it ever did, leaving
            // the operation out is safer than a torn document.
            self.json.truncate(before);
        }
    }

    fn number(&mut self, number: usize) {
        let _infallible = serde_json::to_writer(&mut self.json, &number);
    }

    fn text(&mut self, text: &str) {
        self.json.extend_from_slice(text.as_bytes());
    }

    fn pointer(&mut self, path: Path<'_>) {
        match path {
            Path::Image(place) => self.container(place, "image"),
            Path::Env(place) => self.container(place, "env"),
            Path::EnvEnd(place) => self.container(place, "env/-"),
            Path::EnvEntry(place, entry) => {
                self.container(place, "env/");
                self.number(entry);
            }
            Path::Mounts(place) => self.container(place, "volumeMounts"),
            Path::MountsEnd(place) => self.container(place, "volumeMounts/-"),
            Path::Volumes => self.text("/spec/volumes"),
            Path::VolumesEnd => self.text("/spec/volumes/-"),
            Path::PullSecrets => self.text("/spec/imagePullSecrets"),
            Path::PullSecretsEnd => self.text("/spec/imagePullSecrets/-"),
            Path::Annotations => self.text("/metadata/annotations"),
            Path::Annotation(key) => {
                self.text("/metadata/annotations/");
                // RFC 6901: `~` before `/`, or the second escape would be escaped again.
                self.text(&key.replace('~', "~0").replace('/', "~1"));
            }
        }
    }

    fn container(&mut self, place: Place, field: &str) {
        self.text("/spec/");
        self.text(place.list.field());
        self.text("/");
        self.number(place.index);
        self.text("/");
        self.text(field);
    }
}
