//! The embedded JSON Schema, generated from the code.
//!
//! `cargo reference` writes the file, and a test fails while it differs from the code. Compiled for tests only.

use std::fs;
use std::path::{Path, PathBuf};

/// What writes the files.
const COMMAND: &str = "cargo reference";

/// A file of the repository with the text that it should have.
struct Page {
    path: &'static str,
    text: String,
}

fn pages() -> [Page; 1] {
    [Page {
        path: "src/api/config/schema.json",
        text: format!("{:#}\n", api::config::schema()),
    }]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn generated_files_are_up_to_date() {
    for Page { path, text } in pages() {
        let file = fs::read_to_string(root().join(path)).unwrap_or_default();
        let differing = file
            .lines()
            .zip(text.lines())
            .find(|(is, should)| is != should);
        assert!(
            file == text,
            "{path} is not up to date: run `{COMMAND}` and commit the result; first difference: {differing:?}"
        );
    }
}

#[test]
#[ignore = "writes the generated files; `cargo reference` runs it"]
fn write() {
    for Page { path, text } in pages() {
        let path = root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
