//! The product's images, one a role: what is in it, who it runs as, and that its one program needs nothing beside it.
//!
//! Invariant: judged from outside (the archive, the daemon), never from the Dockerfile's text. Nothing is skipped: a
//! machine without Docker fails here, and reads which command mends that.

#![cfg(test)]

#[path = "images/elf.rs"]
mod elf;

use std::process::{Command, Output};

use clusters::docker;
use clusters::images::{self, Role};
use clusters::progress::Progress;
use clusters::setup::Setup;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use elf::Elf;

#[tokio::test]
async fn it_is_not_root_and_runs_its_component() {
    for image in product().await {
        let role = image.role.name();
        assert_eq!(image.config["User"], "65532:65532", "{role}");
        let entry = json!(["/runtime-bootstrapper", role]);
        assert_eq!(image.config["Entrypoint"], entry, "{role}");
        assert!(image.config["Cmd"].is_null(), "{role}: {}", image.config);
        let help = image.run(&[], &["--help"]);
        let said = String::from_utf8_lossy(&help.stdout);
        let usage = format!("Usage: runtime-bootstrapper {role}");
        assert!(said.contains(&usage), "{role}: {help:?}");
    }
}

#[tokio::test]
async fn it_holds_one_program_and_nothing_else() {
    for image in product().await {
        let names: Vec<&str> = image.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["runtime-bootstrapper"], "{:?}", image.role);
        let mode = image.files[0].mode;
        assert_eq!(
            mode & 0o111,
            0o111,
            "{:?}: anyone may run it: {mode:o}",
            image.role
        );
    }
}

#[tokio::test]
async fn its_program_is_static_and_stripped() {
    for image in product().await {
        let elf = Elf::parse(&image.files[0].bytes);
        assert!(
            !elf.has_interpreter,
            "{:?} wants a dynamic linker",
            image.role
        );
        assert!(!elf.has_symbols, "{:?} is not stripped", image.role);
    }
}

#[tokio::test]
async fn its_program_runs_on_a_read_only_root_without_network_and_rights() {
    for image in product().await {
        let version = image.run(&["--entrypoint", "/runtime-bootstrapper"], &["--version"]);
        let said = String::from_utf8_lossy(&version.stdout);
        let (name, number) = said.trim_end().split_once(' ').unwrap_or_default();
        assert_eq!(name, "runtime-bootstrapper", "{version:?}");
        assert_eq!(number, env!("CARGO_PKG_VERSION"), "the workspace's version");
    }
}

#[test]
fn a_program_with_a_dynamic_linker_is_recognised() {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let elf = Elf::parse(&own);
    assert!(elf.has_interpreter && elf.has_symbols);
}

/// Of every role; built once for all tests, one after the other.
async fn product() -> &'static [Image] {
    static IMAGES: OnceCell<Vec<Image>> = OnceCell::const_new();
    let images = IMAGES.get_or_init(|| async {
        let mut images = Vec::new();
        for role in Role::ALL {
            images.push(Image::of(role).await);
        }
        images
    });
    images.await
}

/// An image as it lies in its archive, and in the daemon under its reference.
struct Image {
    role: Role,
    reference: String,
    config: Value,
    files: Vec<File>,
}

struct File {
    path: String,
    mode: u32,
    bytes: Vec<u8>,
}

impl Image {
    async fn of(role: Role) -> Self {
        if let Err(error) = Setup::load() {
            panic!("{error}");
        }
        let answers = docker(&["version"]);
        assert!(
            answers.status.success(),
            "Docker does not answer; run: cargo run -p harness -- setup\n{}",
            String::from_utf8_lossy(&answers.stderr)
        );
        let archive = images::product(&Progress::new(), role).await.unwrap();
        if !docker(&["image", "inspect", &archive.reference])
            .status
            .success()
        {
            let path = archive.path.display().to_string();
            let loaded = docker(&["load", "--input", &path]);
            assert!(loaded.status.success(), "{loaded:?}");
        }
        let contents = archive.contents().unwrap();
        let config: Value = serde_json::from_slice(&contents.config).unwrap();
        Self {
            role,
            reference: archive.reference,
            config: config["config"].clone(),
            files: contents
                .layers
                .iter()
                .flat_map(|layer| files(layer))
                .collect(),
        }
    }

    /// Runs it as a restricted Pod would, and without a network.
    fn run(&self, options: &[&str], words: &[&str]) -> Output {
        let restricted = [
            "run",
            "--rm",
            "--read-only",
            "--network=none",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
        ];
        let output = docker(&[&restricted, options, &[&self.reference], words].concat());
        assert!(output.status.success(), "{output:?}");
        output
    }
}

fn docker(words: &[&str]) -> Output {
    match Command::new(docker::program()).args(words).output() {
        Ok(output) => output,
        Err(error) => panic!("docker cannot be run ({error}); run: cargo run -p harness -- setup"),
    }
}

fn files(layer: &[u8]) -> Vec<File> {
    let mut archive = tar::Archive::new(layer);
    let mut files = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        files.push(File {
            path: entry.path().unwrap().to_str().unwrap().to_owned(),
            mode: entry.header().mode().unwrap(),
            bytes,
        });
    }
    files
}
