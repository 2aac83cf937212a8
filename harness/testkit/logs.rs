//! What is logged while a test runs on this thread.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

use crate::locked;

/// The log of this thread, from its creation until it is dropped.
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

/// With a single dispatcher, `tracing` asks the thread that first reaches a log statement whether the statement is enabled, and keeps
/// the answer of a thread without one for all threads. With this one, of no thread, it asks all dispatchers.
static ANOTHER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

impl Logs {
    /// Takes everything from this level up.
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

    /// What was logged until now.
    pub fn lines(&self) -> Vec<String> {
        let bytes = locked(&self.written.0);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(str::to_owned).collect()
    }

    /// How many of the lines are warnings and errors.
    pub fn alarms(&self) -> usize {
        let is_alarm = |line: &&String| line.contains(" WARN ") || line.contains("ERROR ");
        self.lines().iter().filter(is_alarm).count()
    }
}
