//! What KCP has to know in the end: the last change of each object.
//!
//! Invariant: a change counts from its answer on, and it is known if an event of its object came out of the listener's
//! stream after that: whoever looks then sees it. An event that overtook its answer does not count; the confirming one
//! has to come.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::kcp::Heard;
use testkit::until::until;

/// When each object's last change was answered.
#[derive(Default)]
pub(super) struct Model {
    answered: HashMap<String, Instant>,
    pub(super) changes: u64,
}

impl Model {
    /// The review of a change was answered.
    pub(super) fn note(&mut self, object: &str, at: Instant) {
        let known = self.answered.entry(object.to_owned()).or_insert(at);
        *known = at.max(*known);
        self.changes += 1;
    }

    /// With what somebody else saw.
    pub(super) fn merge(&mut self, other: Self) {
        for (object, at) in other.answered {
            let known = self.answered.entry(object).or_insert(at);
            *known = at.max(*known);
        }
        self.changes += other.changes;
    }

    pub(super) fn objects(&self) -> usize {
        self.answered.len()
    }

    /// Objects whose last change KCP does not know of.
    pub(super) fn unknown(&self, heard: &Heard) -> usize {
        let unknown = |(object, at): &(&String, &Instant)| {
            heard.of(object).is_none_or(|arrivals| arrivals.last < **at)
        };
        self.answered.iter().filter(unknown).count()
    }

    /// Waits until KCP knows everything, for a time; what it does not know then is lost, and how long it took.
    pub(super) async fn settle(&self, heard: &Heard, patience: Duration) -> (usize, Duration) {
        let begin = Instant::now();
        let known = || async { self.unknown(heard) == 0 };
        // Too late is an answer as well: the one that is counted.
        let _ = until("KCP knows everything", patience, known).await;
        (self.unknown(heard), begin.elapsed())
    }
}

/// Numbers that look random and are the same in each run (`SplitMix64`).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_unknown_until_an_event_comes_after_its_answer() {
        let (heard, mut model) = (Heard::default(), Model::default());
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        model.note("a", at(1));
        assert_eq!(model.unknown(&heard), 1, "never heard of");
        heard.note("a".to_owned(), at(0));
        assert_eq!(
            model.unknown(&heard),
            1,
            "an event that overtook the answer"
        );
        heard.note("a".to_owned(), at(2));
        assert_eq!(model.unknown(&heard), 0);
        let mut later = Model::default();
        later.note("a", at(3));
        model.merge(later);
        assert_eq!(
            (model.unknown(&heard), model.changes),
            (1, 2),
            "changed again"
        );
    }

    #[test]
    fn dice_fall_the_same_each_time_and_on_all_sides() {
        let throw = || {
            let mut dice = Dice(1);
            (0..100).map(|_| dice.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(throw(), throw());
        assert!((0..6).all(|side| throw().contains(&side)));
    }
}
