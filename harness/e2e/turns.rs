//! Outputs of things that happen at once, shown one after the other.
//!
//! Invariant: nothing is lost and nothing is mixed: whoever's turn it is writes through, the others' words are kept
//! until theirs comes. A turn ends when its [`Turn`] is dropped.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Gives the turns out, in the order in which they come.
#[derive(Clone)]
pub struct Turns(Arc<Mutex<Shared>>);

/// One of those who write.
pub struct Turn {
    shared: Arc<Mutex<Shared>>,
    number: usize,
}

struct Shared {
    out: Box<dyn Write + Send>,
    /// How many were given out.
    given: usize,
    /// Whose turn it is.
    current: usize,
    /// What those said whose turn has not come; those who ended meanwhile are marked.
    kept: BTreeMap<usize, Kept>,
}

#[derive(Default)]
struct Kept {
    text: Vec<u8>,
    ended: bool,
}

impl Turns {
    /// All of them write there.
    #[must_use]
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Shared {
            out: Box::new(out),
            given: 0,
            current: 0,
            kept: BTreeMap::new(),
        })))
    }

    /// The next one.
    #[must_use]
    pub fn next(&self) -> Turn {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = shared.given;
        shared.given += 1;
        Turn {
            shared: Arc::clone(&self.0),
            number,
        }
    }
}

impl Shared {
    fn write(&mut self, number: usize, text: &[u8]) -> io::Result<()> {
        if number == self.current {
            return self.out.write_all(text);
        }
        let kept = self.kept.entry(number).or_default();
        kept.text.extend_from_slice(text);
        Ok(())
    }

    fn end(&mut self, number: usize) -> io::Result<()> {
        if number != self.current {
            self.kept.entry(number).or_default().ended = true;
            return Ok(());
        }
        loop {
            self.current += 1;
            let Some(kept) = self.kept.remove(&self.current) else {
                return self.out.flush();
            };
            self.out.write_all(&kept.text)?;
            if !kept.ended {
                return self.out.flush();
            }
        }
    }
}

impl Write for Turn {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.write(self.number, text).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.out.flush()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nobody to tell: the terminal is gone.
        let _ = shared.end(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Screen {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_comes_later_is_shown_later() {
        let screen = Screen::default();
        let turns = Turns::to(screen.clone());
        let (mut first, mut second, mut third) = (turns.next(), turns.next(), turns.next());
        third.write_all(b"3").unwrap();
        first.write_all(b"1").unwrap();
        second.write_all(b"2").unwrap();
        assert_eq!(screen.text(), "1", "the first writes through");
        drop(third);
        assert_eq!(screen.text(), "1", "who ended early still waits");
        drop(first);
        assert_eq!(screen.text(), "12", "the second one's turn");
        second.write_all(b"2").unwrap();
        assert_eq!(screen.text(), "122", "and it writes through");
        drop(second);
        assert_eq!(screen.text(), "1223", "nothing is lost");
    }

    #[test]
    fn one_that_said_nothing_is_passed_over() {
        let screen = Screen::default();
        let turns = Turns::to(screen.clone());
        let (first, second, mut third) = (turns.next(), turns.next(), turns.next());
        third.write_all(b"3").unwrap();
        drop(second);
        drop(first);
        assert_eq!(screen.text(), "3");
        third.write_all(b"!").unwrap();
        assert_eq!(screen.text(), "3!");
    }
}
