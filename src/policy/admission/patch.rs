//! The patch writer: JSON Patch, `add` and `replace` only, on the few paths of [`Path`].
//!
//! The writer is hand-written because a diff is positional, and a round trip through a type loses unknown fields. It
//! cannot remove or move a value. A patch that exceeds its limit is dropped, because half of a patch would leave a
//! Pod half changed.

use super::entry::Entry;
use super::pod::{ContainerList, Placed};

/// Returns the maximum size of a patch, in bytes, for a review of `review` bytes. In a response, where it is base64,
/// the patch needs at most 64 KiB and four times the review, and never more than 1 MiB. A container that the API
/// server sends has about 400 bytes, and the changes of all features are smaller.
pub(super) fn limit(review: usize) -> usize {
    const BASE: usize = 48 * 1024;
    const FACTOR: usize = 3;
    const MAX: usize = 768 * 1024;
    review.saturating_mul(FACTOR).saturating_add(BASE).min(MAX)
}

/// A complete JSON Patch document, or no document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    json: Vec<u8>,
}

impl Patch {
    /// Returns the document; `None` if there is no change.
    #[must_use]
    pub fn json(&self) -> Option<&[u8]> {
        (!self.json.is_empty()).then_some(self.json.as_slice())
    }

    /// Returns whether there is no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.json.is_empty()
    }
}

/// The position of a container in its Pod.
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

/// The only paths that are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// The image of a container.
    Image(Place),
    /// The image of a volume.
    VolumeImage(usize),
    /// The whole environment of a container that has none.
    Env(Place),
    /// One existing entry of the environment.
    EnvEntry(Place, usize),
    /// The end of the environment.
    EnvEnd(Place),
    /// The whole list of mounts of a container that has none.
    Mounts(Place),
    /// The end of the mounts of a container.
    MountsEnd(Place),
    /// The volumes of a Pod that has none.
    Volumes,
    /// The end of the volumes of the Pod.
    VolumesEnd,
    /// The pull Secrets of a Pod that has none.
    PullSecrets,
    /// The end of the pull Secrets of the Pod.
    PullSecretsEnd,
    /// The annotations of a Pod that has none.
    Annotations,
    /// One annotation, by its key.
    Annotation(&'a str),
}

/// The value that is written at a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// A string.
    Text(&'a str),
    /// An entry of an existing list, or a map.
    Entry(&'a Entry),
    /// A new list.
    List(&'a [&'a Entry]),
}

/// Writer of a [`Patch`], one operation after the other.
#[derive(Debug)]
pub(super) struct PatchWriter {
    json: Vec<u8>,
    limit: usize,
}

impl PatchWriter {
    /// Creates the writer of a patch of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            json: Vec::new(),
            limit,
        }
    }

    /// Returns whether the patch has exceeded its limit. Further operations are not written.
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

    /// Returns the patch; `None` if it is too large.
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
            // The capacity is sufficient for all features on a Pod with three containers, so that the buffer is allocated once.
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

    /// The compiler copies a constant text with a few instructions.
    #[inline]
    fn text(&mut self, text: &str) {
        self.json.extend_from_slice(text.as_bytes());
    }

    fn pointer(&mut self, path: Path<'_>) {
        match path {
            Path::Image(place) => self.container(place, "/image"),
            Path::VolumeImage(index) => {
                self.text("/spec/volumes/");
                self.number(index);
                self.text("/image/reference");
            }
            Path::Env(place) => self.container(place, "/env"),
            Path::EnvEnd(place) => self.container(place, "/env/-"),
            Path::EnvEntry(place, entry) => {
                self.container(place, "/env/");
                self.number(entry);
            }
            Path::Mounts(place) => self.container(place, "/volumeMounts"),
            Path::MountsEnd(place) => self.container(place, "/volumeMounts/-"),
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

    /// Writes a key with the escapes of RFC 6901.
    fn key(&mut self, key: &str) {
        for byte in key.bytes() {
            match byte {
                b'~' => self.text("~0"),
                b'/' => self.text("~1"),
                _ => self.json.push(byte),
            }
        }
    }

    #[inline]
    fn container(&mut self, place: Place, field: &str) {
        self.text("/spec/");
        self.text(place.list.field());
        self.text("/");
        self.number(place.index);
        self.text(field);
    }
}
