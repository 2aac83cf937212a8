//! A file or standard input, read completely and with a size limit.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::error::Place;

/// Maximum size of an input. The largest stored object has 1.5 MiB, so dozens of objects fit. It prevents a wrong file name
/// (`/dev/zero`, a disk image) from filling the memory.
pub(super) const LIMIT: u64 = 64 * 1024 * 1024;

/// Suffixes of files with manifests, as in `kubectl`.
const MANIFEST_EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// A text and its source.
#[derive(Debug)]
pub(super) struct Input {
    name: String,
    text: String,
}

/// Returns whether a path means standard input.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns the files of a path: the path itself, or the files of a directory that `kubectl` would read, by name.
/// Subdirectories are not read.
pub(super) fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if is_standard(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    let mut files = entries.with_context(|| unreadable(path.display()))?;
    files.retain(|file| {
        let known = |it: &OsStr| MANIFEST_EXTENSIONS.iter().any(|known| it == *known);
        file.extension().is_some_and(known) && !file.is_dir()
    });
    anyhow::ensure!(
        !files.is_empty(),
        "{}: no files *.yaml, *.yml or *.json",
        path.display()
    );
    files.sort();
    Ok(files)
}

impl Input {
    /// Reads a file, or standard input for `-`.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        if is_standard(path) {
            return Self::from_reader("standard input", io::stdin().lock());
        }
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| unreadable(&name))?;
        Self::from_reader(&name, file)
    }

    /// Reads to the end, or up to [`LIMIT`].
    pub(super) fn from_reader(name: &str, reader: impl Read) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let read = reader.take(LIMIT + 1).read_to_end(&mut bytes);
        read.with_context(|| unreadable(name))?;
        anyhow::ensure!(
            bytes.len() as u64 <= LIMIT,
            "{name}: larger than {} MiB",
            LIMIT / (1024 * 1024)
        );
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = line_at(error.as_bytes(), error.utf8_error().valid_up_to());
            anyhow::anyhow!("{name}:{line}: not UTF-8")
        })?;
        // Editors on Windows write a byte order mark at the start, which is not part of the text.
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        Ok(Self {
            name: name.to_owned(),
            text,
        })
    }

    /// Returns the name of the file, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the content.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns a position in the input.
    pub(super) fn at(&self, line: Option<u64>) -> Place {
        Place {
            file: self.name.clone(),
            line,
        }
    }
}

/// Returns the line of a byte offset, counted from 1.
pub(super) fn line_at(bytes: &[u8], offset: usize) -> u64 {
    let before = bytes.get(..offset).unwrap_or(bytes);
    before.split(|byte| *byte == b'\n').count() as u64
}

fn unreadable(file: impl Display) -> String {
    format!("{file}: cannot be read")
}
