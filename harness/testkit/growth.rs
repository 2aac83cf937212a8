//! Checks how the time of an algorithm grows with its input.

use std::time::{Duration, Instant};

/// Factor between the sizes of the two inputs.
const FACTOR: usize = 16;

/// Number of measurements of each input. The shortest one counts: other processes make a measurement longer, never shorter.
const ROUNDS: usize = 5;

/// Limit of the ratio of the two times: 1 if the time is proportional to the size, 16 if it grows with its square.
const LIMIT: u32 = 5;

/// Checks that `run` takes a time that is proportional to the size of its input: one run with 16 times `size` takes at most
/// five times as long as 16 runs with `size`. Both measurements take about the same time, so that other processes interrupt
/// both alike.
///
/// # Panics
/// If it takes longer.
pub fn assert_proportional<I>(size: usize, input: impl Fn(usize) -> I, run: impl Fn(&I)) {
    let (small, large) = (input(size), input(size * FACTOR));
    let (mut many_small, mut one_large) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        many_small = many_small.min(timed(|| (0..FACTOR).for_each(|_| run(&small))));
        one_large = one_large.min(timed(|| run(&large)));
    }
    assert!(
        one_large < many_small * LIMIT,
        "{FACTOR} x {size}: {many_small:?}, 1 x {}: {one_large:?}",
        size * FACTOR
    );
}

fn timed(code: impl FnOnce()) -> Duration {
    let start = Instant::now();
    code();
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Compares each item with `others` items.
    fn compare(items: &[usize], others: usize) {
        for item in items {
            let mut others = items.iter().take(others);
            black_box(others.any(|it| black_box(*it) > *item + items.len()));
        }
    }

    fn items(count: usize) -> Vec<usize> {
        (0..count).collect()
    }

    #[test]
    fn a_comparison_of_each_with_a_few_is_proportional() {
        assert_proportional(200, items, |items| compare(items, 100));
    }

    #[test]
    #[should_panic(expected = "16 x 200")]
    fn a_comparison_of_each_with_each_is_not() {
        assert_proportional(200, items, |items| compare(items, items.len()));
    }
}
