//! A folder on a local disk.
//!
//! Everything goes through the folder's descriptor, so that a path that changes on the way to it changes nothing; links
//! in it are not followed, new files must be new, and what is no plain file is not opened. Files are for their owner only.
//! Two processes are kept apart by a lock on a file beside the segments (`flock`): the kernel lets go of it when its
//! holder dies, however it dies. Sound on local disks and `emptyDir`, which is where a spool belongs; not on every NFS.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{Appended, Disk, Folder};

/// The file that is locked. It stays: removing it would let a third process lock another of the same name.
const LOCK: &str = "lock";

/// Owner only.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A path.
#[derive(Debug)]
pub(in super::super) struct LocalDisk(pub(in super::super) PathBuf);

impl Disk for LocalDisk {
    fn open(&self) -> io::Result<Arc<dyn Folder>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.0, flags, Mode::empty())?;
        let lock = open(&folder, LOCK, OFlags::RDWR | OFlags::CREATE)?;
        lock.try_lock()?;
        Ok(Arc::new(LocalFolder {
            folder,
            _lock: lock,
        }))
    }
}

#[derive(Debug)]
struct LocalFolder {
    folder: OwnedFd,
    _lock: File,
}

impl Folder for LocalFolder {
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

    fn create(&self, name: &str) -> io::Result<Arc<dyn Appended>> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let file = open(&self.folder, name, flags)?;
        Ok(Arc::new(LocalFile(file)))
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

impl Appended for LocalFile {
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

#[cfg(test)]
mod tests;
