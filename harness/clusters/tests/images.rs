//! The product's images, one for each component: their files, their user, and that the program needs no other files.
//!
//! The tests check the images in the daemon, not the Dockerfile. No test is skipped: without Docker the tests fail with an
//! error that names the command for the set-up.

#![cfg(test)]

use std::collections::HashMap;
use std::io::Read as _;
use std::process::Command;

use clusters::images::{self, Role};
use clusters::setup::Setup;
use object::elf::PT_INTERP;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _};
use serde_json::{Value, json};

#[tokio::test]
async fn it_is_one_static_program_that_needs_no_rights() {
    Setup::load().unwrap_or_else(|error| panic!("{error}"));
    for role in Role::ALL {
        let image = Product::of(images::product(role).await.unwrap().reference);
        let role = clusters::name_of(&role);
        assert_eq!(image.config["User"], "65532:65532", "{role}");
        let entry = json!(["/runtime-bootstrapper", &role]);
        assert_eq!(image.config["Entrypoint"], entry, "{role}");
        assert!(image.config["Cmd"].is_null(), "{role}: {}", image.config);

        let [(path, mode, program)] = image.files.as_slice() else {
            panic!("{role}: {} files", image.files.len());
        };
        assert_eq!(path, "runtime-bootstrapper");
        assert_eq!(mode & 0o111, 0o111, "any user may run it: {mode:o}");
        assert_eq!(interpreter_and_symbols(program), (false, false), "{role}");

        let usage = format!("Usage: runtime-bootstrapper {role}");
        let help = image.run(&[], "--help");
        assert!(help.contains(&usage), "{role}: {help}");
        let version = image.run(&["--entrypoint", "/runtime-bootstrapper"], "--version");
        let expected = concat!("runtime-bootstrapper ", env!("CARGO_PKG_VERSION"));
        assert_eq!(version.trim_end(), expected, "the workspace's version");
    }
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(interpreter_and_symbols(&own), (true, true), "this test");
}

/// Returns whether a program needs a dynamic linker, and whether it has a symbol table.
fn interpreter_and_symbols(program: &[u8]) -> (bool, bool) {
    let elf = ElfFile64::<Endianness>::parse(program).unwrap();
    let mut headers = elf.elf_program_headers().iter();
    let interpreter = headers.any(|header| header.p_type(elf.endian()) == PT_INTERP);
    (interpreter, elf.symbol_table().is_some())
}

/// An image in the daemon.
struct Product {
    reference: String,
    config: Value,
    /// Path, mode and content of the files of all layers.
    files: Vec<(String, u32, Vec<u8>)>,
}

impl Product {
    fn of(reference: String) -> Self {
        let config = docker(&["image", "inspect", "--format={{json .Config}}", &reference]);
        let archive: HashMap<_, _> = files(&docker(&["save", &reference]))
            .into_iter()
            .map(|(path, _, content)| (path, content))
            .collect();
        let manifest: Value = serde_json::from_slice(&archive["manifest.json"]).unwrap();
        let layers = manifest[0]["Layers"].as_array().unwrap().iter();
        Self {
            reference,
            config: serde_json::from_slice(&config).unwrap(),
            files: layers
                .flat_map(|it| files(&archive[it.as_str().unwrap()]))
                .collect(),
        }
    }

    /// Runs the image with the restrictions of a Pod and without a network; returns its output.
    fn run(&self, options: &[&str], argument: &str) -> String {
        let restricted = "run --rm --read-only --network=none --cap-drop=ALL";
        let mut arguments: Vec<&str> = restricted.split(' ').collect();
        arguments.push("--security-opt=no-new-privileges");
        arguments.extend([options, &[&self.reference, argument]].concat());
        String::from_utf8(docker(&arguments)).unwrap()
    }
}

fn docker(args: &[&str]) -> Vec<u8> {
    let output = Command::new("docker").args(args).output().unwrap();
    assert!(output.status.success(), "docker {args:?}: {output:?}");
    output.stdout
}

fn files(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let mut files = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        files.push((path, entry.header().mode().unwrap(), content));
    }
    files
}
