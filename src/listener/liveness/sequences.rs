//! Numbers of a sequence that have arrived, in limited memory.
//!
//! After an outage a watcher delivers in any order, under the old numbers, so a late number is not lost. Invariant: a
//! number counts as missing after a higher number (or a heartbeat that confirms it) has arrived, until it arrives. It
//! cannot arrive anymore after two heartbeats have confirmed it, or when it is 131 072 below the highest number. Numbers
//! below the first received number are not missing, because an earlier process of the listener may have received them. When
//! the sequence skips more than 131 072 numbers, the skipped numbers do not count either. No watcher causes such a gap, and
//! one forged number would saturate the sum.

use std::collections::VecDeque;

/// Maximum number of words. Each of the 131 072 numbers in them may still arrive, which exceeds the number of objects of a
/// watcher (100 000). They take 16 KiB while the lowest number is missing, and 8 bytes while none is missing.
const WORDS: u64 = 2048;

const BITS: u64 = u64::BITS as u64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    highest: Option<u64>,
    /// Bit `b` of word `w` means that the number `64 * (first_word + w) + b` has arrived, or does not count as missing. The
    /// last word contains the highest number, unless all its numbers have arrived.
    words: VecDeque<u64>,
    first_word: u64,
    /// Number of lost numbers, which cannot arrive anymore.
    lost: u64,
    /// The number that the last heartbeat confirmed.
    vouched: u64,
}

impl Sequences {
    /// Records that `number` has arrived. Returns whether numbers were passed over, or cannot arrive any more.
    pub(super) fn arrived(&mut self, number: u64) -> bool {
        let lost = self.lost;
        let leapt = self.advance(number);
        if let Some(word) = self.word(number) {
            *word |= 1 << (number % BITS);
        }
        self.trim();
        leapt || self.lost > lost
    }

    /// Records that all numbers up to `number` should have arrived. Those that the last heartbeat vouched for and that have not
    /// arrived are lost. Returns whether numbers were passed over, or cannot arrive any more.
    pub(super) fn expect(&mut self, number: u64) -> bool {
        let lost = self.lost;
        let leapt = self.advance(number);
        let vouched = self.vouched;
        self.drop_words(vouched / BITS);
        if let Some(word) = self.word(vouched) {
            let late = !*word & up_to(vouched);
            *word |= late;
            self.lost = self.lost.saturating_add(late.count_ones().into());
        }
        self.vouched = vouched.max(number);
        self.trim();
        leapt || self.lost > lost
    }

    /// Returns the highest known number.
    pub(super) fn highest(&self) -> u64 {
        self.highest.unwrap_or(0)
    }

    /// Returns the count of numbers that should have arrived and have not.
    pub(super) fn missing(&self) -> u64 {
        let zeros = self.words.iter().map(|word| u64::from(word.count_zeros()));
        let above = !up_to(self.highest()) & self.words.back().map_or(0, |last| !last);
        self.lost
            .saturating_add(zeros.sum::<u64>() - u64::from(above.count_ones()))
    }

    /// Returns the count of numbers that have not arrived, and cannot arrive anymore.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Sets `number` as the highest number, if it is higher. Missing numbers too far below it become lost. Returns whether
    /// numbers were skipped.
    fn advance(&mut self, number: u64) -> bool {
        let last = number / BITS;
        let mut skipped = 0;
        match self.highest {
            None => {
                self.first_word = last;
                self.words.push_back(up_to(number));
            }
            Some(highest) if highest < number => {
                let first = last.saturating_sub(WORDS - 1);
                self.drop_words(first);
                skipped = first.saturating_sub(self.first_word);
                self.first_word += skipped;
                // The length is at most `WORDS`.
                let length = usize::try_from(last + 1 - self.first_word).unwrap_or_default();
                self.words.resize(length, 0);
            }
            Some(_) => return false,
        }
        self.highest = Some(number);
        skipped > 0
    }

    /// Removes all words before `first`. Their missing numbers become lost.
    fn drop_words(&mut self, first: u64) {
        while self.first_word < first
            && let Some(word) = self.words.pop_front()
        {
            self.first_word += 1;
            self.lost = self.lost.saturating_add(word.count_zeros().into());
        }
    }

    /// Removes the first words without missing numbers, and frees memory that a long outage required.
    fn trim(&mut self) {
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.first_word += 1;
        }
        if self.words.capacity() > 8 && self.words.capacity() / 4 > self.words.len() {
            self.words.shrink_to(self.words.len() * 2);
        }
    }

    fn word(&mut self, number: u64) -> Option<&mut u64> {
        let at = (number / BITS).checked_sub(self.first_word)?;
        self.words.get_mut(usize::try_from(at).ok()?)
    }
}

/// Returns a mask with the bit of `number` and all lower bits of its word.
fn up_to(number: u64) -> u64 {
    u64::MAX >> (BITS - 1 - number % BITS)
}

#[cfg(test)]
mod tests;
