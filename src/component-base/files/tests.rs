use std::fs;

use super::*;

#[test]
fn a_file_is_read_up_to_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "four").unwrap();
    assert_eq!(read(&path, 4).unwrap(), b"four");
    assert_eq!(read(&path, 3).unwrap_err().to_string(), "exceeds 3 bytes");
}

#[test]
fn what_is_no_file_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(read(folder.path(), 9), Err(FileError::NotRegular)));
    let missing = folder.path().join("file");
    assert!(matches!(read(&missing, 9), Err(FileError::NotFound)));
    let below_a_file = folder.path().join("a");
    fs::write(&below_a_file, "").unwrap();
    let below_a_file = below_a_file.join("b");
    assert!(matches!(read(&below_a_file, 9), Err(FileError::Io(_))));
}

#[test]
fn a_fingerprint_depends_on_the_boundaries_of_contents() {
    assert_eq!(fingerprint(&[b"a", b"b"]), fingerprint(&[b"a", b"b"]));
    assert_ne!(fingerprint(&[b"ab", b""]), fingerprint(&[b"a", b"b"]));
}
