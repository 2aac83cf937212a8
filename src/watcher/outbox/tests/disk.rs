//! A disk in memory that can be full, refuse operations, fail at any byte, and lose data that was not synced.
//!
//! It is stricter than any file system: a name persists only after a sync of its directory, and content only after a sync
//! of its file.

use std::collections::BTreeMap;
use std::io::{self, Cursor, ErrorKind, Read};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::outbox::storage::{AppendFile, Storage};

#[derive(Clone, Debug, Default)]
pub(crate) struct FakeDisk(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
pub(crate) struct Content {
    names: BTreeMap<String, usize>,
    lasting_names: BTreeMap<String, usize>,
    files: Vec<FakeFile>,
    held: Weak<()>,
    /// Number of bytes and changes that may still be written before the process dies.
    pub(crate) life: Option<u64>,
    /// Maximum number of bytes of all files.
    pub(crate) limit: Option<usize>,
    /// Error of each change.
    pub(crate) refusal: Option<ErrorKind>,
    /// Error of opening the directory.
    pub(crate) closed: Option<ErrorKind>,
    /// Error of a sync of a file.
    pub(crate) sync_refusal: Option<ErrorKind>,
    /// Error of creating a file.
    pub(crate) create_refusal: Option<ErrorKind>,
    /// Delays each thread that runs this operation.
    pub(crate) brake: Option<(Operation, Arc<Brake>)>,
    dead: bool,
}

/// Operation of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Open,
    Create,
    Append,
    Sync,
    SyncDirectory,
    Rename,
    Remove,
}

/// Signals that a call has reached the disk, and blocks the call until it is released.
#[derive(Debug)]
pub(crate) struct Brake {
    pub(crate) asked: Sender<()>,
    pub(crate) go: Mutex<Receiver<()>>,
}

#[derive(Clone, Debug, Default)]
struct FakeFile {
    bytes: Vec<u8>,
    lasting: Vec<u8>,
}

impl FakeDisk {
    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap()
    }

    /// Creates a disk with one file.
    pub(crate) fn with(name: &str, bytes: &[u8]) -> Self {
        let disk = Self::default();
        disk.content().insert(name, bytes);
        disk
    }
}

impl FakeDisk {
    fn braked(&self, operation: Operation) -> MutexGuard<'_, Content> {
        let brake = self.content().brake.clone();
        if let Some((_, brake)) = brake.filter(|(braked, _)| *braked == operation) {
            // The other ends may have been dropped.
            let _ = brake.asked.send(());
            let _ = brake.go.lock().unwrap().recv();
        }
        self.content()
    }
}

impl Content {
    pub(crate) fn insert(&mut self, name: &str, bytes: &[u8]) {
        self.names.insert(name.to_owned(), self.files.len());
        self.files.push(FakeFile {
            bytes: bytes.to_vec(),
            lasting: Vec::new(),
        });
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        self.files[self.names[name]].bytes.clone()
    }

    /// Returns the number of bytes of all files.
    pub(crate) fn used(&self) -> usize {
        self.names
            .values()
            .map(|file| self.files[*file].bytes.len())
            .sum()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Repairs the disk for the next process, and keeps the files of the last process.
    pub(crate) fn revive(&mut self) {
        self.life = None;
        self.dead = false;
        self.limit = None;
        self.refusal = None;
        self.sync_refusal = None;
    }

    /// Simulates a power failure: data that was not synced is lost, except `kept` bytes of each file.
    pub(crate) fn lose_power(&mut self, kept: usize) {
        self.names = self.lasting_names.clone();
        for file in &mut self.files {
            let end = file.bytes.len().min(file.lasting.len() + kept);
            let rest = file.bytes[file.lasting.len().min(end)..end].to_vec();
            file.bytes = [file.lasting.clone(), rest].concat();
        }
        self.revive();
    }

    /// Accounts for a change of this size. Returns the number of bytes that are written.
    fn spend(&mut self, bytes: usize) -> io::Result<usize> {
        if self.dead {
            return Err(io::Error::other("dead"));
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal.into());
        }
        let cost = bytes as u64 + 1;
        let Some(life) = &mut self.life else {
            return Ok(bytes);
        };
        if *life >= cost {
            *life -= cost;
            return Ok(bytes);
        }
        self.dead = true;
        Ok(usize::try_from(*life).unwrap())
    }

    fn change(&mut self) -> io::Result<()> {
        self.spend(0)?;
        if self.dead {
            return Err(io::Error::other("dead"));
        }
        Ok(())
    }

    fn file(&mut self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl FakeDisk {
    pub(crate) fn open(&self) -> io::Result<Box<dyn Storage>> {
        let mut content = self.braked(Operation::Open);
        if let Some(closed) = content.closed {
            return Err(closed.into());
        }
        if content.held.upgrade().is_some() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let lock = Arc::new(());
        content.held = Arc::downgrade(&lock);
        Ok(Box::new(FakeStorage {
            disk: self.clone(),
            _lock: lock,
        }))
    }
}

#[derive(Debug)]
struct FakeStorage {
    disk: FakeDisk,
    _lock: Arc<()>,
}

#[derive(Debug)]
struct Handle {
    disk: FakeDisk,
    file: usize,
}

impl Storage for FakeStorage {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.disk.content().names())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read>> {
        let mut content = self.disk.content();
        let file = content.file(name)?;
        Ok(Box::new(Cursor::new(content.files[file].bytes.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        let mut content = self.disk.braked(Operation::Create);
        content.change()?;
        if let Some(refusal) = content.create_refusal {
            return Err(refusal.into());
        }
        if content.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        content.insert(name, b"");
        Ok(Box::new(Handle {
            disk: self.disk.clone(),
            file: content.names[name],
        }))
    }

    fn overwrite(&self, name: &str, at: u64, byte: u8) -> io::Result<()> {
        let mut content = self.disk.content();
        content.change()?;
        let file = content.file(name)?;
        content.files[file].bytes[usize::try_from(at).unwrap()] = byte;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut content = self.disk.braked(Operation::Rename);
        content.change()?;
        let file = content.file(from)?;
        content.names.remove(from);
        content.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut content = self.disk.braked(Operation::Remove);
        content.change()?;
        content.file(name)?;
        content.names.remove(name);
        // The worst order: a removal takes effect immediately, and a new name only after a sync of the directory.
        content.lasting_names.remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut content = self.disk.braked(Operation::SyncDirectory);
        content.change()?;
        content.lasting_names = content.names.clone();
        Ok(())
    }
}

impl AppendFile for Handle {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut content = self.disk.braked(Operation::Append);
        let used = content.used();
        let left = content
            .limit
            .map_or(usize::MAX, |limit| limit.saturating_sub(used));
        let taken = content.spend(bytes.len().min(left))?;
        content.files[self.file]
            .bytes
            .extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let mut content = self.disk.content();
        content.change()?;
        content.files[self.file]
            .bytes
            .truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut content = self.disk.braked(Operation::Sync);
        content.change()?;
        if let Some(refusal) = content.sync_refusal {
            return Err(refusal.into());
        }
        let file = &mut content.files[self.file];
        file.lasting = file.bytes.clone();
        Ok(())
    }
}
