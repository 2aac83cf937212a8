//! The patch writer: JSON Patch, `add` and `replace` only, on the few paths that [`Path`] can name.
//!
//! Written by hand because a diff is positional and a typed round trip loses unknown fields.
//! Nothing here can remove or move a value. A patch that grows beyond its limit is none:
//! half of one would leave a Pod half changed.

use super::entry::Entry;
use super::pod::{ContainerList, Placed};

/// The size of the largest patch, in bytes, for a review of `review` bytes. In an answer, where it is base64, it takes
/// 64 KiB and four times the review at most, and never more than 1 MiB. A container as the API server sends it has
/// about 400 bytes, and what all features change of it fewer.
pub(super) fn limit(review: usize) -> usize {
    const BASE: usize = 48 * 1024;
    const FACTOR: usize = 3;
    const MAX: usize = 768 * 1024;
    review.saturating_mul(FACTOR).saturating_add(BASE).min(MAX)
}

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
    /// The image of a volume.
    VolumeImage(usize),
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

/// What is written at a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// A string.
    Text(&'a str),
    /// An entry of a list that is there, or a map.
    Entry(&'a Entry),
    /// A list that was absent.
    List(&'a [&'a Entry]),
}

/// Writes a [`Patch`], operation by operation.
#[derive(Debug)]
pub(super) struct PatchWriter {
    json: Vec<u8>,
    limit: usize,
}

impl PatchWriter {
    /// The writer of a patch of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            json: Vec::new(),
            limit,
        }
    }

    /// Whether the patch has grown beyond its limit. Further operations are not written.
    pub(super) fn is_too_large(&self) -> bool {
        self.json.len() >= self.limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    pub(super) fn add(&mut self, path: Path<'_>, value: Value<'_>) {
        self.operation(r#"{"op":"add","path":""#, path, value);
    }

    pub(super) fn replace(&mut self, path: Path<'_>, value: Value<'_>) {
        self.operation(r#"{"op":"replace","path":""#, path, value);
    }

    /// The patch; `None` if it is too large.
    pub(super) fn finish(mut self) -> Option<Patch> {
        if self.is_too_large() {
            return None;
        }
        if !self.json.is_empty() {
            self.json.push(b']');
        }
        Some(Patch { json: self.json })
    }

    #[inline]
    fn operation(&mut self, start: &str, path: Path<'_>, value: Value<'_>) {
        if self.is_too_large() {
            return;
        }
        self.next();
        self.text(start);
        self.rest(path, value);
    }

    fn next(&mut self) {
        if self.json.is_empty() {
            // Enough for all features on a Pod of three containers, so that it grows once.
            self.json.reserve(2048);
            self.json.push(b'[');
        } else {
            self.json.push(b',');
        }
    }

    fn rest(&mut self, path: Path<'_>, value: Value<'_>) {
        self.pointer(path);
        self.text(r#"","value":"#);
        match value {
            Value::Text(text) => self.string(text),
            Value::Entry(entry) => self.text(entry.json()),
            Value::List(entries) => self.list(entries),
        }
        self.json.push(b'}');
    }

    fn list(&mut self, entries: &[&Entry]) {
        let mut before = b'[';
        for entry in entries {
            self.json.push(before);
            self.text(entry.json());
            before = b',';
        }
        self.json.push(b']');
    }

    fn string(&mut self, text: &str) {
        if partial_json::is_plain(text) {
            self.json.push(b'"');
            self.text(text);
            self.json.push(b'"');
        } else {
            let _infallible = serde_json::to_writer(&mut self.json, text);
        }
    }

    fn number(&mut self, number: usize) {
        match u8::try_from(number) {
            Ok(digit @ ..10) => self.json.push(b'0' + digit),
            _ => {
                let _infallible = serde_json::to_writer(&mut self.json, &number);
            }
        }
    }

    /// The compiler copies a text that it knows in a few instructions.
    #[inline]
    fn text(&mut self, text: &str) {
        self.json.extend_from_slice(text.as_bytes());
    }

    fn pointer(&mut self, path: Path<'_>) {
        match path {
            Path::Image(place) => {
                self.container(place);
                self.text("/image");
            }
            Path::VolumeImage(index) => {
                self.text("/spec/volumes/");
                self.number(index);
                self.text("/image/reference");
            }
            Path::Env(place) => {
                self.container(place);
                self.text("/env");
            }
            Path::EnvEnd(place) => {
                self.container(place);
                self.text("/env/-");
            }
            Path::EnvEntry(place, entry) => {
                self.container(place);
                self.text("/env/");
                self.number(entry);
            }
            Path::Mounts(place) => {
                self.container(place);
                self.text("/volumeMounts");
            }
            Path::MountsEnd(place) => {
                self.container(place);
                self.text("/volumeMounts/-");
            }
            Path::Volumes => self.text("/spec/volumes"),
            Path::VolumesEnd => self.text("/spec/volumes/-"),
            Path::PullSecrets => self.text("/spec/imagePullSecrets"),
            Path::PullSecretsEnd => self.text("/spec/imagePullSecrets/-"),
            Path::Annotations => self.text("/metadata/annotations"),
            Path::Annotation(key) => {
                self.text("/metadata/annotations/");
                self.key(key);
            }
        }
    }

    /// A key with the escapes of RFC 6901.
    fn key(&mut self, key: &str) {
        for byte in key.bytes() {
            match byte {
                b'~' => self.text("~0"),
                b'/' => self.text("~1"),
                _ => self.json.push(byte),
            }
        }
    }

    fn container(&mut self, place: Place) {
        self.text("/spec/");
        self.text(place.list.field());
        self.text("/");
        self.number(place.index);
    }
}
