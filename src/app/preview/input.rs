//! A file or standard input, read completely and with a size limit.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::PreviewError;
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
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, PreviewError> {
    if is_standard(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    let mut files = entries.map_err(|source| PreviewError::Read {
        file: path.display().to_string(),
        source,
    })?;
    files.retain(|file| {
        let known = |it: &OsStr| MANIFEST_EXTENSIONS.iter().any(|known| it == *known);
        file.extension().is_some_and(known) && !file.is_dir()
    });
    if files.is_empty() {
        return Err(PreviewError::NoFiles(path.display().to_string()));
    }
    files.sort();
    Ok(files)
}

impl Input {
    /// Reads a file, or standard input for `-`.
    pub(super) fn read(path: &Path) -> Result<Self, PreviewError> {
        if is_standard(path) {
            return Self::from_reader("standard input", io::stdin().lock());
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::from_reader(&name, file),
            Err(source) => Err(PreviewError::Read { file: name, source }),
        }
    }

    /// Reads to the end, or up to [`LIMIT`].
    pub(super) fn from_reader(name: &str, reader: impl Read) -> Result<Self, PreviewError> {
        let mut bytes = Vec::new();
        reader
            .take(LIMIT + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| PreviewError::Read {
                file: name.to_owned(),
                source,
            })?;
        if bytes.len() as u64 > LIMIT {
            return Err(PreviewError::TooLarge {
                file: name.to_owned(),
                limit: LIMIT,
            });
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            PreviewError::Encoding(Place {
                file: name.to_owned(),
                line: Some(line_at(error.as_bytes(), good)),
            })
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
