//! Evidence: one folder for everything that explains the last failure of a scenario.
//!
//! Collecting never fails a run: what cannot be read is written down as a line in `missing.txt`.

use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;

use crate::workspace;

/// The folder of one failed scenario.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Where it lies.
    pub folder: PathBuf,
}

impl Evidence {
    /// An empty folder `target/harness/evidence/<feature>/<scenario>`.
    pub fn of(feature: &str, scenario: &str) -> std::io::Result<Self> {
        let root = workspace::state().join("evidence");
        Self::in_folder(root.join(slug(feature)).join(slug(scenario)))
    }

    /// The same in a folder of the caller's choice.
    pub fn in_folder(folder: PathBuf) -> std::io::Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Keeps `content` under `name`, which may have folders of its own.
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

    /// Keeps what a fallible source gave, or the reason why there is nothing.
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

/// A name that is safe as one path segment: lower-case letters, digits and single hyphens.
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
