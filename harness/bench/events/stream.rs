//! A stream of reviews: so many at a rate, or as fast as they are answered.
//!
//! Invariant: a review whose time came while all connections were busy counts from that time (no coordinated omission);
//! one that a connection waited for counts from its sending, since a timer that is late is the bench's own fault. An API
//! server waits for [`API_SERVER`], then it goes on without an answer, and so does this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::model::Model;
use super::report::Times;
use super::reviews::{API_SERVER, Asker, Door, request};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    /// What the objects' names begin with.
    pub(super) prefix: &'static str,
    pub(super) reviews: u32,
    /// Reviews a second; 0: as soon as a connection is free.
    pub(super) rate: u32,
    /// Their names go round so many.
    pub(super) objects: u32,
    pub(super) connections: usize,
}

/// One review.
pub(super) struct Asked {
    pub(super) object: String,
    pub(super) begin: Instant,
    pub(super) end: Instant,
    /// Whether the API server still waited for the answer.
    pub(super) answered: bool,
}

/// All of a stream.
pub(super) struct Answers(pub(super) Vec<Asked>);

impl Answers {
    pub(super) fn times(&self) -> anyhow::Result<Times> {
        Times::new(self.0.iter().map(|asked| asked.end - asked.begin))
    }

    /// Reviews on which API servers gave up.
    pub(super) fn given_up(&self) -> usize {
        self.0.iter().filter(|asked| !asked.answered).count()
    }

    /// What KCP has to know.
    pub(super) fn model(&self) -> Model {
        let mut model = Model::default();
        for asked in self.0.iter().filter(|asked| asked.answered) {
            model.note(&asked.object, asked.end);
        }
        model
    }
}

impl Stream {
    /// Asks at `door`.
    pub(super) async fn run(self, door: &Door) -> anyhow::Result<Answers> {
        let mut askers = Vec::new();
        for _ in 0..self.connections {
            askers.push(door.enter().await?);
        }
        let plan = Arc::new(Plan {
            stream: self,
            begin: Instant::now(),
            next: AtomicU32::new(0),
        });
        let ask = |asker| work(plan.clone(), door.clone(), asker);
        let mut tasks: JoinSet<_> = askers.into_iter().map(ask).collect();
        let mut all = Vec::new();
        while let Some(asked) = tasks.join_next().await {
            all.extend(asked??);
        }
        Ok(Answers(all))
    }
}

/// What the connections of a stream share.
struct Plan {
    stream: Stream,
    begin: Instant,
    next: AtomicU32,
}

impl Plan {
    /// The next object, and when its review is due.
    fn take(&self) -> Option<(String, Instant)> {
        let Stream {
            prefix,
            reviews,
            rate,
            objects,
            ..
        } = self.stream;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let after = match rate {
            0 => Duration::ZERO,
            _ => Duration::from_secs(1) * number / rate,
        };
        let object = format!("{prefix}-{}", number % objects.max(1));
        (number < reviews).then(|| (object, self.begin + after))
    }

    /// Waits until then; from when on the review counts.
    async fn begin(&self, due: Instant) -> Instant {
        if self.stream.rate == 0 {
            return Instant::now();
        }
        if due <= Instant::now() {
            return due;
        }
        tokio::time::sleep_until(due.into()).await;
        Instant::now()
    }
}

async fn work(plan: Arc<Plan>, door: Door, asker: Asker) -> anyhow::Result<Vec<Asked>> {
    let mut all = Vec::new();
    let mut asker = Some(asker);
    while let Some((object, due)) = plan.take() {
        let mut open = match asker.take() {
            Some(open) => open,
            None => door.enter().await?,
        };
        let request = request(&object);
        let begin = plan.begin(due).await;
        let answer = timeout(API_SERVER, open.ask(&request)).await;
        let end = Instant::now();
        let answered = answer.is_ok();
        if let Ok(answer) = answer {
            answer?;
            asker = Some(open);
        }
        all.push(Asked {
            object,
            begin,
            end,
            answered,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_due_at_their_rate_and_names_go_round() {
        let plan = Plan {
            stream: Stream {
                prefix: "a",
                reviews: 3,
                rate: 10,
                objects: 2,
                connections: 1,
            },
            begin: Instant::now(),
            next: AtomicU32::new(0),
        };
        let due = |millis| plan.begin + Duration::from_millis(millis);
        assert_eq!(plan.take(), Some(("a-0".to_owned(), due(0))));
        assert_eq!(plan.take(), Some(("a-1".to_owned(), due(100))));
        assert_eq!(plan.take(), Some(("a-0".to_owned(), due(200))));
        assert_eq!(plan.take(), None);
    }

    #[test]
    fn a_change_that_was_not_answered_need_not_be_known() {
        let begin = Instant::now();
        let asked = |object: &str, answered| Asked {
            object: object.to_owned(),
            begin,
            end: begin + Duration::from_millis(10),
            answered,
        };
        let answers = Answers(vec![asked("a", true), asked("b", false)]);
        assert_eq!((answers.model().objects(), answers.given_up()), (1, 1));
        assert!((answers.times().unwrap().quantile(1.0) - 10.0).abs() < 0.1);
    }
}
