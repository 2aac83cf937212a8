//! The directory of the spool. All operations use the descriptor of the directory, do not follow links in it, and ignore
//! files with other names. A lock on a file (`flock`) excludes a second process. The lock is reliable on local disks, but
//! not on each NFS.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// Function that opens the spool directory for exclusive use, until the returned value is dropped. It may be called
/// repeatedly. [`io::ErrorKind::WouldBlock`] means that another process uses the directory.
pub(super) type OpenSpool = Box<dyn Fn() -> io::Result<Box<dyn Storage>> + Send>;

/// An open spool directory, to which only this process writes.
pub(super) trait Storage: Debug + Send + Sync {
    fn names(&self) -> io::Result<Vec<String>>;
    fn read(&self, name: &str) -> io::Result<Box<dyn Read>>;
    /// Creates a file for appending. Fails if the file exists.
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>>;
    /// Changes one byte of a file in place.
    fn overwrite(&self, name: &str, at: u64, byte: u8) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Syncs the directory entries to the disk.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is only appended to.
pub(super) trait AppendFile: Debug + Send + Sync {
    /// Appends `bytes` in one call. Returns the number of written bytes.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Syncs the content of the file to the disk.
    fn sync(&self) -> io::Result<()>;
}

/// Name of the locked file. The file is not removed, because then a third process could lock a new file of the same name.
const LOCK: &str = "lock";

/// File mode: access only for the owner.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens a directory of a local file system, as [`OpenSpool`].
pub(super) fn open_local(path: &Path) -> io::Result<Box<dyn Storage>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty())?;
    let lock = open(&folder, LOCK, OFlags::RDWR | OFlags::CREATE)?;
    lock.try_lock()?;
    Ok(Box::new(LocalStorage {
        folder,
        _lock: lock,
    }))
}

#[derive(Debug)]
struct LocalStorage {
    folder: OwnedFd,
    _lock: File,
}

impl Storage for LocalStorage {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            // A name that is not UTF-8 is not a segment.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(open(&self.folder, name, OFlags::RDONLY)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let file = open(&self.folder, name, flags)?;
        Ok(Box::new(LocalFile(file)))
    }

    fn overwrite(&self, name: &str, at: u64, byte: u8) -> io::Result<()> {
        open(&self.folder, name, OFlags::WRONLY)?.write_all_at(&[byte], at)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.folder)?)
    }
}

/// Opens a regular file. `NONBLOCK` is relevant only for other files: opening a pipe would wait for its other end.
fn open(folder: &OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::openat(folder, name, flags, MODE)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::other("not a plain file"));
    }
    Ok(File::from(file))
}

#[derive(Debug)]
struct LocalFile(File);

impl AppendFile for LocalFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.0).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Maximum accepted number of a segment, so that there is always a next number.
const HIGHEST: u64 = u64::MAX / 2;

/// Returns the number and the suffix in the name of a segment, which may be finished, unfinished or quarantined. Later
/// segments have higher numbers.
pub(super) fn parse_name(name: &str) -> Option<(u64, &str)> {
    let (number, suffix) = name.split_once('.')?;
    let plain = number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(number, 16).ok().filter(|_| plain)?;
    let known = suffix == SEGMENT || suffix == UNFINISHED || suffix.starts_with(ASIDE);
    (number <= HIGHEST && known).then_some((number, suffix))
}

/// Suffix of finished segments.
pub(super) const SEGMENT: &str = "spool";

/// Suffix of a segment whose writer ended before the segment was complete.
pub(super) const UNFINISHED: &str = "unfinished";

/// Suffix of a quarantined segment. The version follows, if the segment has one.
const ASIDE: &str = "aside";

pub(super) fn segment_name(number: u64) -> String {
    format!("{number:016x}.{SEGMENT}")
}

pub(super) fn unfinished_name(number: u64) -> String {
    format!("{number:016x}.{UNFINISHED}")
}

/// Returns the name of a quarantined segment. `version` is `None` if the file is not a valid segment.
pub(super) fn aside_name(number: u64, version: Option<u16>) -> String {
    let version = version.map(|version| format!("-version-{version}"));
    format!("{number:016x}.{ASIDE}{}", version.unwrap_or_default())
}

#[cfg(test)]
mod tests;
