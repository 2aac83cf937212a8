//! Image archives: the format of `docker save`, read and written without Docker.
//!
//! Invariant: equal input gives equal bytes (no times, no owners), so a digest names an image. Only what the format
//! needs: `manifest.json`, the configuration, uncompressed layers. Deliberately absent: several images in a file.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::ImageError;

/// An image as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTar {
    /// Its name and tag.
    pub reference: String,
    /// The archive.
    pub path: PathBuf,
    /// The digest of its configuration, `sha256:…`: what Docker calls the image's id.
    pub id: String,
}

/// What a registry wants to have.
#[derive(Debug, Clone)]
pub struct Contents {
    /// The configuration, JSON.
    pub config: Vec<u8>,
    /// The layers, tar archives, the lowest first.
    pub layers: Vec<Vec<u8>>,
}

impl ImageTar {
    /// An archive that `docker save` or [`ImageTar::write`] made.
    ///
    /// # Errors
    /// When it is none, or holds no named image.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let mut files = read(path, |name| name == MANIFEST)?;
        let manifest = manifest(path, &mut files)?;
        let mut files = read(path, |name| name == manifest.config)?;
        let config = take(path, &mut files, &manifest.config)?;
        let reference = manifest
            .repo_tags
            .into_iter()
            .flatten()
            .next()
            .ok_or_else(|| odd(path, "the image has no name"))?;
        Ok(Self {
            reference,
            path: path.to_owned(),
            id: digest(&config),
        })
    }

    /// Writes an image of one layer that holds one program.
    ///
    /// `settings` is the `config` object of the image: user, entry point, stop signal.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(
        path: &Path,
        reference: &str,
        program: (&str, &[u8]),
        settings: &Value,
    ) -> Result<Self, ImageError> {
        Self::write_files(path, reference, [program], settings)
    }

    /// The same with several files, all of them executable.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_files<'a>(
        path: &Path,
        reference: &str,
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        settings: &Value,
    ) -> Result<Self, ImageError> {
        let failed = |source| ImageError::File {
            path: path.to_owned(),
            source,
        };
        let files = files.into_iter().map(|(name, bytes)| (name, bytes, 0o755));
        let layer = tar(files).map_err(failed)?;
        let config = serde_json::json!({
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        })
        .to_string();
        let id = digest(config.as_bytes());
        let config_name = format!("{}.json", id.trim_start_matches("sha256:"));
        let manifest = serde_json::json!([{
            "Config": config_name, "RepoTags": [reference], "Layers": [LAYER],
        }])
        .to_string();
        let whole = tar([
            (LAYER, layer.as_slice(), 0o644),
            (&config_name, config.as_bytes(), 0o644),
            (MANIFEST, manifest.as_bytes(), 0o644),
        ])
        .map_err(failed)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        std::fs::write(path, whole).map_err(failed)?;
        Ok(Self {
            reference: reference.to_owned(),
            path: path.to_owned(),
            id,
        })
    }

    /// Configuration and layers.
    ///
    /// # Errors
    /// When the archive cannot be read or lacks one of them.
    pub fn contents(&self) -> Result<Contents, ImageError> {
        let path = &self.path;
        let mut files = read(path, |_| true)?;
        let manifest = manifest(path, &mut files)?;
        let config = take(path, &mut files, &manifest.config)?;
        let layers = manifest.layers.iter();
        Ok(Contents {
            config,
            layers: layers
                .map(|layer| take(path, &mut files, layer))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// The digest that registries and runtimes use: `sha256:` and 64 hexadecimal digits.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// An archive of plain files that depends on nothing but them.
pub(crate) fn tar<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8], u32)>,
) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes, mode) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_mtime(0);
        archive.append_data(&mut header, name, bytes)?;
    }
    archive.into_inner()
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Manifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

fn manifest(path: &Path, files: &mut HashMap<String, Vec<u8>>) -> Result<Manifest, ImageError> {
    let bytes = take(path, files, MANIFEST)?;
    let manifests: Vec<Manifest> = serde_json::from_slice(&bytes)
        .map_err(|error| odd(path, &format!("{MANIFEST}: {error}")))?;
    manifests
        .into_iter()
        .next()
        .ok_or_else(|| odd(path, "it holds no image"))
}

fn take(
    path: &Path,
    files: &mut HashMap<String, Vec<u8>>,
    name: &str,
) -> Result<Vec<u8>, ImageError> {
    files
        .remove(name)
        .ok_or_else(|| odd(path, &format!("{name} is missing")))
}

fn read(
    path: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<HashMap<String, Vec<u8>>, ImageError> {
    let failed = |source| ImageError::File {
        path: path.to_owned(),
        source,
    };
    let mut archive = tar::Archive::new(std::fs::File::open(path).map_err(failed)?);
    let mut files = HashMap::new();
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let name = entry.path().map_err(failed)?.to_string_lossy().into_owned();
        if wanted(&name) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(failed)?;
            files.insert(name, bytes);
        }
    }
    Ok(files)
}

fn odd(path: &Path, reason: &str) -> ImageError {
    ImageError::Archive {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

const MANIFEST: &str = "manifest.json";
const LAYER: &str = "layer.tar";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        let settings = serde_json::json!({ "User": "65532:65532" });
        let written =
            ImageTar::write(&path, "localhost/x:1", ("x", b"program"), &settings).unwrap();
        let first = std::fs::read(&path).unwrap();

        assert_eq!(ImageTar::open(&path).unwrap(), written);
        let contents = written.contents().unwrap();
        assert_eq!(digest(&contents.config), written.id);
        let config: Value = serde_json::from_slice(&contents.config).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&contents.layers[0]));
        assert_eq!(config["config"]["User"], "65532:65532");

        ImageTar::write(&path, "localhost/x:1", ("x", b"program"), &settings).unwrap();
        assert_eq!(
            std::fs::read(&path).unwrap(),
            first,
            "equal input gives equal bytes"
        );
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        std::fs::write(&path, tar([("hello", b"x".as_slice(), 0o644)]).unwrap()).unwrap();
        let error = ImageTar::open(&path).unwrap_err();
        assert!(
            error.to_string().ends_with("manifest.json is missing"),
            "{error}"
        );
    }
}
