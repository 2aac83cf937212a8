//! The directory of the spool. Everything goes through its descriptor, links in it are not followed, and files of other names
//! are left alone. A lock on a file (`flock`) keeps two processes apart, which is sound on local disks, not on every NFS.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// Opens the spool directory for this process alone, until what is returned is dropped; again and again, if need be.
/// [`io::ErrorKind::WouldBlock`]: another process has it.
pub(super) type OpenSpool = Box<dyn Fn() -> io::Result<Box<dyn Storage>> + Send>;

/// An open spool directory, which only this process writes to.
pub(super) trait Storage: Debug + Send + Sync {
    fn names(&self) -> io::Result<Vec<String>>;
    fn read(&self, name: &str) -> io::Result<Box<dyn Read>>;
    /// Creates a file for appending; an error if there is one.
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>>;
    /// Changes one byte of a file, in place.
    fn overwrite(&self, name: &str, at: u64, byte: u8) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Forces the names to the disk.
    fn sync(&self) -> io::Result<()>;
}

/// A file that grows at its end.
pub(super) trait AppendFile: Debug + Send + Sync {
    /// Writes `bytes` at the end, in one call; how many of them were.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Forces its content to the disk.
    fn sync(&self) -> io::Result<()>;
}

/// The file that is locked. It stays: removing it would let a third process lock another of the same name.
const LOCK: &str = "lock";

/// Owner only.
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
            // A name that is no text is none of ours.
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

/// Opens a plain file. `NONBLOCK` matters only for what is none: a pipe would wait for its other end.
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

/// Highest number of a segment that is believed: there must always be a next one.
const HIGHEST: u64 = u64::MAX / 2;

/// The number in the name of a segment, finished or not, or quarantined; later ones have higher numbers. The rest says which.
pub(super) fn parse_name(name: &str) -> Option<(u64, &str)> {
    let (number, suffix) = name.split_once('.')?;
    let plain = number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(number, 16).ok().filter(|_| plain)?;
    let known = suffix == SEGMENT || suffix == UNFINISHED || suffix.starts_with(ASIDE);
    (number <= HIGHEST && known).then_some((number, suffix))
}

/// What the names of segments end with.
pub(super) const SEGMENT: &str = "spool";

/// A segment that was being written when its writer died.
pub(super) const UNFINISHED: &str = "unfinished";

/// A segment that was quarantined; the version follows, if it has one.
const ASIDE: &str = "aside";

pub(super) fn segment_name(number: u64) -> String {
    format!("{number:016x}.{SEGMENT}")
}

pub(super) fn unfinished_name(number: u64) -> String {
    format!("{number:016x}.{UNFINISHED}")
}

/// Of a segment of another version; `None`: of what is no segment at all.
pub(super) fn aside_name(number: u64, version: Option<u16>) -> String {
    let version = version.map(|version| format!("-version-{version}"));
    format!("{number:016x}.{ASIDE}{}", version.unwrap_or_default())
}

#[cfg(test)]
mod tests;
