//! Which numbers of a sequence have come, in bounded space.
//!
//! A watcher that was cut off delivers in any order, under the numbers of before: what comes late is no loss. Invariant: a
//! number counts as missing from the moment a higher one (or a heartbeat that vouches for it) is heard, until it
//! comes. It cannot come any more once two heartbeats have vouched for it, or once it is 131 072 below the highest.
//! Numbers below the first one heard are not missed: they may have gone to an earlier life of the listener. Nor are those that
//! a leap over more than 131 072 passes over: no watcher makes one, and a single forged number would saturate the sum.

use std::collections::VecDeque;

/// Of so many words, 131 072 numbers, each may still come: more than a watcher has objects to tell of (100 000). They take
/// 16 KiB while the lowest of them is missing, and 8 bytes while none is.
const WORDS: u64 = 2048;

const BITS: u64 = u64::BITS as u64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    highest: Option<u64>,
    /// Bit `b` of word `w`: the number `64 * (first_word + w) + b` has come, or is not missed any more. The last word is
    /// that of the highest number, unless all its numbers have come.
    words: VecDeque<u64>,
    first_word: u64,
    /// Missing for good.
    lost: u64,
    /// What the last heartbeat vouched for.
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

    /// The highest number heard of.
    pub(super) fn highest(&self) -> u64 {
        self.highest.unwrap_or(0)
    }

    /// Numbers that should have come and have not.
    pub(super) fn missing(&self) -> u64 {
        let zeros = self.words.iter().map(|word| u64::from(word.count_zeros()));
        let above = !up_to(self.highest()) & self.words.back().map_or(0, |last| !last);
        self.lost
            .saturating_add(zeros.sum::<u64>() - u64::from(above.count_ones()))
    }

    /// Numbers that have not come, and cannot come any more.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Makes `number` the highest, if it is; what lies too far below it is lost. Gives whether numbers were passed over.
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
                // At most `WORDS`.
                let length = usize::try_from(last + 1 - self.first_word).unwrap_or_default();
                self.words.resize(length, 0);
            }
            Some(_) => return false,
        }
        self.highest = Some(number);
        skipped > 0
    }

    /// Forgets all words before `first`; what has not come of them is lost.
    fn drop_words(&mut self, first: u64) {
        while self.first_word < first
            && let Some(word) = self.words.pop_front()
        {
            self.first_word += 1;
            self.lost = self.lost.saturating_add(word.count_zeros().into());
        }
    }

    /// Forgets the words in front in which nothing is missing, and gives back what a long outage has needed.
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

/// The bits of `number` and of those below it in its word.
fn up_to(number: u64) -> u64 {
    u64::MAX >> (BITS - 1 - number % BITS)
}

#[cfg(test)]
mod tests;
