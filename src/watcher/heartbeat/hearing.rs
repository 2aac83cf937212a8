//! Whether a manager is sent heartbeats, by what it answered.
//!
//! 404 or 405 is the answer of a public listener, which knows no heartbeats: it is left alone until the next start.
//! A gateway whose route to the manager is not there yet answers 404, too. What tells them apart is an
//! event that was taken: the route leads to a listener. Before that the manager is asked again, less and less often;
//! after it, once more. Whoever has taken a heartbeat knows them; a 404 is then the gateway's.
//!
//! Invariant: a public listener is asked no more once it has taken an event and refused a heartbeat after that.
//! Deliberately absent: time; it is counted in rounds.

use std::mem::discriminant;

/// Most rounds of which one asks: eight minutes with the default interval.
const RAREST: u32 = 8;

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Taken,
    /// 404 or 405.
    Unknown,
    /// Anything else: it says nothing about heartbeats.
    Failed,
}

/// What is known of one manager.
#[derive(Debug, Default)]
pub(super) enum Hearing {
    #[default]
    Untried,
    /// It knows heartbeats.
    Hears,
    /// It, or the gateway, does not, for the last `asked` times; the next `pause` rounds leave it out.
    Unclear { asked: u32, pause: u32 },
    /// It does not.
    Deaf,
}

impl Hearing {
    /// Whether this round asks a manager that has taken an event, or not (`reached`).
    pub(super) fn is_asked(&mut self, reached: bool) -> bool {
        match self {
            Self::Unclear { pause, .. } if *pause > 0 && !reached => {
                *pause -= 1;
                false
            }
            Self::Untried | Self::Hears | Self::Unclear { .. } => true,
            Self::Deaf => false,
        }
    }

    /// What it answered in this round; `reached` is from before it was asked. Whether that changes what is known of it.
    pub(super) fn answered(&mut self, answer: Answer, reached: bool) -> bool {
        let before = discriminant(self);
        *self = match (&*self, answer) {
            (_, Answer::Taken) | (Self::Hears, _) => Self::Hears,
            (Self::Untried, Answer::Failed) => Self::Untried,
            (Self::Unclear { asked, .. }, Answer::Failed) => Self::Unclear {
                asked: *asked,
                pause: 0,
            },
            (Self::Deaf, _) => Self::Deaf,
            (_, Answer::Unknown) if reached => Self::Deaf,
            (before, Answer::Unknown) => {
                let asked = before.asked() + 1;
                let rounds = 2_u32.saturating_pow(asked - 1).min(RAREST);
                Self::Unclear {
                    asked,
                    pause: rounds - 1,
                }
            }
        };
        before != discriminant(self)
    }

    fn asked(&self) -> u32 {
        match self {
            Self::Unclear { asked, .. } => *asked,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In which of so many rounds a manager is asked that answers so.
    fn asked(
        rounds: u32,
        answer: impl Fn(u32) -> Answer,
        reached: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut hearing = Hearing::default();
        let mut asked = Vec::new();
        for round in 1..=rounds {
            let reached = reached(round);
            if hearing.is_asked(reached) {
                asked.push(round);
                hearing.answered(answer(round), reached);
            }
        }
        asked
    }

    #[test]
    fn a_public_listener_that_took_an_event_is_asked_once() {
        assert_eq!(asked(100, |_| Answer::Unknown, |_| true), [1]);
    }

    #[test]
    fn one_that_took_none_is_asked_less_and_less_and_once_more_when_it_has() {
        let expected = [1, 2, 4, 8, 16, 24, 32, 33];
        assert_eq!(
            asked(100, |_| Answer::Unknown, |round| round > 32),
            expected
        );
    }

    #[test]
    fn a_route_that_comes_late_is_found_and_may_go_and_come_again() {
        let answer = |round| match round {
            ..20 | 30..40 => Answer::Unknown,
            _ => Answer::Taken,
        };
        let rounds = asked(50, answer, |round| round > 25);
        assert_eq!(rounds[..5], [1, 2, 4, 8, 16]);
        assert!(rounds[5..].iter().copied().eq(24..=50), "{rounds:?}");
    }

    #[test]
    fn a_failure_says_nothing() {
        let answer = |round| {
            if round == 60 {
                Answer::Unknown
            } else {
                Answer::Failed
            }
        };
        assert!(asked(60, answer, |_| true).into_iter().eq(1..=60));
        assert_eq!(asked(100, answer, |_| true).len(), 60);
    }
}
