//! A disk in memory that runs full, refuses, dies at any byte, and forgets what was not forced.
//!
//! Stricter than any file system: a name lasts only once its folder was synced, content only once its file was.

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
    /// Bytes that may still be written, and changes that may still be made, before the process dies.
    pub(crate) life: Option<u64>,
    /// Most bytes of all files.
    pub(crate) limit: Option<usize>,
    /// What every change is answered with.
    pub(crate) refusal: Option<ErrorKind>,
    /// What opening the folder is answered with.
    pub(crate) closed: Option<ErrorKind>,
    /// What forcing a file is answered with.
    pub(crate) sync_refusal: Option<ErrorKind>,
    /// What creating a file is answered with.
    pub(crate) create_refusal: Option<ErrorKind>,
    /// Delays each thread that does this.
    pub(crate) brake: Option<(Operation, Arc<Brake>)>,
    dead: bool,
}

/// What is asked of a disk.
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

/// Says that a call has reached the disk, and lets it go on when it is told.
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

    /// A disk with one file.
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

    /// Bytes of all files.
    pub(crate) fn used(&self) -> usize {
        self.names
            .values()
            .map(|file| self.files[*file].bytes.len())
            .sum()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// The next process finds a sound disk, with what the last one has written.
    pub(crate) fn revive(&mut self) {
        self.life = None;
        self.dead = false;
        self.limit = None;
        self.refusal = None;
        self.sync_refusal = None;
    }

    /// The machine loses what was not forced, but for `kept` bytes of each file.
    pub(crate) fn lose_power(&mut self, kept: usize) {
        self.names = self.lasting_names.clone();
        for file in &mut self.files {
            let end = file.bytes.len().min(file.lasting.len() + kept);
            let rest = file.bytes[file.lasting.len().min(end)..end].to_vec();
            file.bytes = [file.lasting.clone(), rest].concat();
        }
        self.revive();
    }

    /// A change of so many bytes is to be made: how many of them are.
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
        // The worst order of all: what goes, goes at once, and what comes waits for the folder's sync.
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
