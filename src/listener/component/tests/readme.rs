//! The README lists the versions of the crates that are in public signatures.

use std::fs;

#[test]
fn versions_of_public_dependencies_are_those_of_the_workspace() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).unwrap();
    let (readme, workspace, package) = (
        read("README.md"),
        read("../../Cargo.toml"),
        read("Cargo.toml"),
    );
    let rows = readme.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        let version = cells.next()?;
        let is_version = version.starts_with(|it: char| it.is_ascii_digit());
        is_version.then_some((name, version))
    });
    let mut count = 0;
    for (name, version) in rows {
        let plain = format!("\n{name} = \"{version}\"\n");
        let with_features = format!("\n{name} = {{ version = \"{version}\",");
        let is_current = workspace.contains(&plain) || workspace.contains(&with_features);
        assert!(is_current, "{name} {version}");
        assert!(package.contains(&format!("\n{name}")), "{name}");
        count += 1;
    }
    assert_eq!(count, 7);
}
