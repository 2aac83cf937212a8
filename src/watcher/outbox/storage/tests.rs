use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rstest::rstest;

use super::*;

fn open_folder(path: &std::path::Path) -> io::Result<Box<dyn Storage>> {
    open_local(path)
}

#[test]
fn a_file_grows_is_cut_and_changed_in_place() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = open_folder(temporary.path()).unwrap();
    let file = folder.create("a").unwrap();
    assert_eq!(file.append(b"hello").unwrap(), 5);
    assert_eq!(file.append(b" world").unwrap(), 6);
    file.cut(5).unwrap();
    assert_eq!(file.append(b"!").unwrap(), 1);
    folder.overwrite("a", 0, b'J').unwrap();
    file.sync().unwrap();
    folder.rename("a", "b").unwrap();
    folder.sync().unwrap();
    let mut text = String::new();
    folder.read("b").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "Jello!");
    let mut names = folder.names().unwrap();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    assert_eq!(names, ["b", "lock"]);
    folder.remove("b").unwrap();
    assert!(!temporary.path().join("b").exists());
}

#[test]
fn files_are_for_their_owner_only() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = open_folder(temporary.path()).unwrap();
    folder.create("a").unwrap();
    for name in ["a", "lock"] {
        let mode = fs::metadata(temporary.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
}

#[test]
fn two_do_not_have_one_folder() {
    let temporary = tempfile::tempdir().unwrap();
    let first = open_folder(temporary.path()).unwrap();
    let refused = open_folder(temporary.path()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    drop(first);
    open_folder(temporary.path()).unwrap();
}

#[test]
fn a_new_file_is_new() {
    let temporary = tempfile::tempdir().unwrap();
    fs::write(temporary.path().join("a"), "precious").unwrap();
    let folder = open_folder(temporary.path()).unwrap();
    let refused = folder.create("a").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn links_are_not_followed() {
    let temporary = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(&outside, "precious").unwrap();
    symlink(outside.path(), temporary.path().join("a")).unwrap();
    let folder = open_folder(temporary.path()).unwrap();
    assert!(folder.read("a").is_err());
    assert!(folder.create("a").is_err());
    assert!(folder.overwrite("a", 0, b'X').is_err());
    folder.remove("a").unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "precious");
}

#[test]
fn a_lock_that_is_a_link_is_not_followed() {
    let temporary = tempfile::tempdir().unwrap();
    let target = temporary.path().join("created");
    symlink(&target, temporary.path().join("lock")).unwrap();
    assert!(open_folder(temporary.path()).is_err());
    assert!(!target.exists());
}

#[test]
fn what_is_no_plain_file_is_not_opened() {
    let temporary = tempfile::tempdir().unwrap();
    fs::create_dir(temporary.path().join("a")).unwrap();
    let pipe = temporary.path().join("b");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, MODE, 0).unwrap();
    let folder = open_folder(temporary.path()).unwrap();
    assert!(folder.read("a").is_err());
    // Without `NONBLOCK` this would wait for a writer.
    assert!(folder.read("b").is_err());
}

#[rstest]
#[case::absent("absent")]
#[case::no_folder("file")]
#[case::not_writable("/proc")]
fn a_folder_that_is_none_is_refused(#[case] path: &str) {
    let temporary = tempfile::tempdir().unwrap();
    fs::write(temporary.path().join("file"), "").unwrap();
    let refused = open_folder(&temporary.path().join(path)).unwrap_err();
    assert_ne!(refused.kind(), io::ErrorKind::WouldBlock);
}

#[rstest]
#[case(segment_name(0x2a), Some((0x2a, "spool")))]
#[case(unfinished_name(HIGHEST), Some((HIGHEST, "unfinished")))]
#[case::no_number_behind_it(segment_name(u64::MAX), None)]
#[case(aside_name(7, Some(2)), Some((7, "aside-version-2")))]
#[case(aside_name(7, None), Some((7, "aside")))]
#[case::lock("lock".to_owned(), None)]
#[case::too_short("2a.spool".to_owned(), None)]
#[case::a_sign("+00000000000002a.spool".to_owned(), None)]
#[case::another_suffix("000000000000002a.spool.bak".to_owned(), None)]
fn names_are_read_back(#[case] name: String, #[case] named: Option<(u64, &str)>) {
    assert_eq!(parse_name(&name), named);
}
