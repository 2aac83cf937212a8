//! Which numbers of a sequence have come, in bounded space.
//!
//! A watcher that was cut off delivers in any order, under the numbers of before: what comes late is no loss. Invariant: a
//! number counts as missing from the moment a higher one (or a heartbeat that vouches for it) is heard, until it
//! comes. It cannot come any more once two heartbeats have vouched for it, or once it is 131 072 below the highest.
//! Numbers below the first one heard are not missed: they may have gone to an earlier life of the listener.

use std::collections::VecDeque;

/// Of so many words, 131 072 numbers, each may still come: more than a watcher has objects to tell of (100 000). They take
/// 16 KiB while the lowest of them is missing, and 8 bytes while none is.
const WORDS: u64 = 2048;

const BITS: u64 = u64::BITS as u64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    highest: Option<u64>,
    /// Bit `b` of word `w`: the number `64 * (first_word + w) + b` has come, or is not missed any more.
    words: VecDeque<u64>,
    first_word: u64,
    /// Missing, and may still come.
    outstanding: u64,
    /// Missing for good.
    lost: u64,
    /// What the last heartbeat vouched for.
    vouched: u64,
}

impl Sequences {
    /// `number` has come.
    pub(super) fn arrived(&mut self, number: u64) {
        self.advance(number);
        let Some(at) = (number / BITS).checked_sub(self.first_word) else {
            return;
        };
        let word = self.word(at);
        let bit = 1 << (number % BITS);
        if *word & bit == 0 {
            *word |= bit;
            self.outstanding -= 1;
        }
        self.trim();
    }

    /// All numbers up to `number` should have come.
    pub(super) fn expect(&mut self, number: u64) {
        self.advance(number);
        self.settle(self.vouched);
        self.vouched = self.vouched.max(number);
        self.trim();
    }

    /// The highest number heard of.
    pub(super) fn highest(&self) -> u64 {
        self.highest.unwrap_or(0)
    }

    /// Numbers that should have come and have not.
    pub(super) fn missing(&self) -> u64 {
        self.lost.saturating_add(self.outstanding)
    }

    /// Makes `number` the highest, if it is; what lies too far below it is lost.
    fn advance(&mut self, number: u64) {
        let Some(highest) = self.highest else {
            self.highest = Some(number);
            self.first_word = number / BITS;
            self.words.push_back(up_to(number));
            return;
        };
        let Some(step) = number.checked_sub(highest).filter(|&step| step > 0) else {
            return;
        };
        self.highest = Some(number);
        self.outstanding = self.outstanding.saturating_add(step);
        self.drop_words((number / BITS).saturating_sub(WORDS - 1));
    }

    /// What has not come of the numbers up to `number` is lost.
    fn settle(&mut self, number: u64) {
        if self.highest.is_none_or(|highest| highest < number) {
            return;
        }
        self.drop_words(number / BITS);
        if let Some(at) = (number / BITS).checked_sub(self.first_word) {
            let word = self.word(at);
            let late = !*word & up_to(number);
            *word |= late;
            self.lose(late.count_ones().into());
        }
    }

    /// Forgets all words before `first`, which lies at or below the highest number's.
    fn drop_words(&mut self, first: u64) {
        while self.first_word < first
            && let Some(word) = self.words.pop_front()
        {
            self.first_word += 1;
            self.lose(word.count_zeros().into());
        }
        let never_made = first.saturating_sub(self.first_word);
        self.lose(never_made * BITS);
        self.first_word += never_made;
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

    fn lose(&mut self, numbers: u64) {
        self.outstanding -= numbers;
        self.lost = self.lost.saturating_add(numbers);
    }

    /// The word `at` places behind the first; those up to it are made.
    fn word(&mut self, at: u64) -> &mut u64 {
        // Below `WORDS` for any number that is not above the highest.
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        &mut self.words[at]
    }
}

/// The bits of `number` and of those below it in its word.
fn up_to(number: u64) -> u64 {
    u64::MAX >> (BITS - 1 - number % BITS)
}

#[cfg(test)]
mod tests;
