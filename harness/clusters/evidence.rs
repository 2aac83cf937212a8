//! Evidence: one folder with all diagnostics of the last failure of a scenario.
//!
//! Collecting evidence never fails a run: `missing.txt` has a line for each item that could not be read.

use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;

use crate::workspace;

/// The folder of one failed scenario.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Path of the folder.
    pub folder: PathBuf,
}

impl Evidence {
    /// Creates an empty folder `target/harness/evidence/<feature>/<scenario>`.
    pub fn of(feature: &str, scenario: &str) -> std::io::Result<Self> {
        let root = workspace::state().join("evidence");
        Self::in_folder(root.join(slug(feature)).join(slug(scenario)))
    }

    /// Creates an empty folder at a path of the caller's choice.
    pub fn in_folder(folder: PathBuf) -> std::io::Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Writes `content` to the file `name`, which may contain folders.
    pub fn keep(&self, name: &str, content: impl AsRef<[u8]>) {
        let file = self.folder.join(name);
        let written = file
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&file, content));
        if let Err(error) = written {
            self.miss(name, &error);
        }
    }

    /// Writes the content to the file `name`; for an error, the reason is recorded in `missing.txt`.
    pub fn keep_result<C: AsRef<[u8]>, E: Display>(&self, name: &str, content: Result<C, E>) {
        match content {
            Ok(content) => self.keep(name, content),
            Err(error) => self.miss(name, &error),
        }
    }

    fn miss(&self, name: &str, reason: &dyn Display) {
        let line = format!("{name}: {reason:#}\n");
        let noted = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("missing.txt"))
            .and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = noted {
            tracing::warn!(name, %reason, %error, "evidence is lost");
        }
    }
}

/// Returns a name that is safe as one path segment: lower-case letters, digits and single hyphens.
pub fn slug(text: &str) -> String {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_it_gets_and_notes_what_it_does_not() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("x");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("old"), "old").unwrap();

        let evidence = Evidence::in_folder(folder.clone()).unwrap();
        evidence.keep("node/kubelet.log", "line");
        evidence.keep_result("pods.yaml", Err::<&str, _>("no route to host"));

        assert!(!folder.join("old").exists());
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("node/kubelet.log"), "line");
        assert_eq!(read("missing.txt"), "pods.yaml: no route to host\n");
    }

    #[test]
    fn a_slug_is_one_path_segment() {
        assert_eq!(slug("A Pod: ../etc, and \"more\"!"), "a-pod-etc-and-more");
    }
}
