//! What the spool needs of a disk, and nothing more: names, appends, and what makes them last.
//!
//! Invariant: every name is one of a file directly in the folder, and none is followed as a link. The tests stand in for
//! the disk here, to let it run full, break, or die at any byte.

use std::fmt::Debug;
use std::io::{self, Read};
use std::sync::Arc;

pub(super) mod local;

/// Where a folder is to be found, again and again if need be.
pub(super) trait Disk: Debug + Send + Sync {
    /// Opens the folder for this process alone, until the last clone is dropped. [`io::ErrorKind::WouldBlock`]: another
    /// process has it.
    fn open(&self) -> io::Result<Arc<dyn Folder>>;
}

/// A folder that only we write to.
pub(super) trait Folder: Debug + Send + Sync {
    /// The files in it.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Opens a file for reading.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read>>;
    /// Creates a file for appending; an error if there is one.
    fn create(&self, name: &str) -> io::Result<Arc<dyn Appended>>;
    /// Changes one byte of a file, in place.
    fn overwrite(&self, name: &str, at: u64, byte: u8) -> io::Result<()>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names last.
    fn sync(&self) -> io::Result<()>;
}

/// A file that grows at its end.
pub(super) trait Appended: Debug + Send + Sync {
    /// Writes `bytes` at the end, in one call; how many of them were.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts the file to `length`.
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Makes its content last.
    fn sync(&self) -> io::Result<()>;
}
