//! Captures the log of this thread while a test runs.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

use crate::locked;

/// The log of this thread from the creation of the value until it is dropped.
#[derive(Debug)]
pub struct Logs {
    written: Written,
    _guard: DefaultGuard,
}

#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A second dispatcher, which no thread uses. With a single dispatcher, `tracing` caches whether a log statement is enabled for
/// the thread that first reaches it, for all threads. With two it evaluates all dispatchers.
static ANOTHER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

impl Logs {
    /// Captures all log lines of this level and above.
    pub fn of(level: Level) -> Self {
        LazyLock::force(&ANOTHER);
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        Self {
            written,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Returns the lines so far.
    pub fn lines(&self) -> Vec<String> {
        let bytes = locked(&self.written.0);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the number of warnings and errors.
    pub fn alarms(&self) -> usize {
        let is_alarm = |line: &&String| line.contains(" WARN ") || line.contains("ERROR ");
        self.lines().iter().filter(is_alarm).count()
    }
}
