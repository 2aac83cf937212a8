//! Which numbers of a sequence have come, in constant space.
//!
//! Invariant: a number counts as missing from the moment a higher one (or a heartbeat that vouches for it) is heard, until
//! it comes; a number more than 63 below the highest cannot come any more. Numbers below the first one heard are not
//! missed: they may have gone to an earlier life of the listener.

/// How many numbers below the highest may still come.
const WINDOW: u64 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    highest: Option<u64>,
    /// Bit `i`: the number `highest - i` has come, or is not missed.
    window: u64,
    lost: u64,
}

impl Sequences {
    /// `number` has come.
    pub(super) fn arrived(&mut self, number: u64) {
        self.advance(number);
        let age = self.highest.unwrap_or(number) - number;
        if age < WINDOW {
            self.window |= 1 << age;
        }
    }

    /// All numbers up to `number` should have come.
    pub(super) fn expect(&mut self, number: u64) {
        self.advance(number);
    }

    /// The highest number heard of.
    pub(super) fn highest(&self) -> u64 {
        self.highest.unwrap_or(0)
    }

    /// Numbers that should have come and have not.
    pub(super) fn missing(&self) -> u64 {
        match self.highest {
            None => 0,
            Some(_) => self
                .lost
                .saturating_add(u64::from(self.window.count_zeros())),
        }
    }

    fn advance(&mut self, number: u64) {
        let Some(highest) = self.highest else {
            self.highest = Some(number);
            self.window = u64::MAX;
            return;
        };
        let Some(step) = number.checked_sub(highest).filter(|&step| step > 0) else {
            return;
        };
        self.highest = Some(number);
        if step < WINDOW {
            let leaving = self.window >> (WINDOW - step);
            self.lost = self
                .lost
                .saturating_add(step - u64::from(leaving.count_ones()));
            self.window <<= step;
        } else {
            let never_in_window = step - WINDOW;
            let leaving = u64::from(self.window.count_zeros());
            self.lost = self
                .lost
                .saturating_add(leaving)
                .saturating_add(never_in_window);
            self.window = 0;
        }
    }
}

#[cfg(test)]
mod tests;
