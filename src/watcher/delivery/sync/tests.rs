//! Tests of requests to KCP before the response, with a paused clock.

use std::collections::VecDeque;
use std::future::ready;

use rstest::rstest;
use tokio::time::Instant;

use super::*;

fn answers(status: u16) -> Result<(), PostError> {
    let retry_after = None;
    match status {
        200 => Ok(()),
        0 => Err(PostError::Unreachable("connection refused".into())),
        status => Err(PostError::Refused {
            status,
            retry_after,
        }),
    }
}

/// The status 0 means no response.
#[rstest]
#[case::at_once(&[200], 1, true)]
#[case::at_the_second(&[503, 200], 2, true)]
#[case::at_the_third(&[0, 500, 200], 3, true)]
#[case::never(&[503, 503, 503, 200], 3, false)]
#[case::unreachable(&[0, 0, 0, 200], 3, false)]
#[case::bad_request(&[400, 200], 1, false)]
#[case::too_many(&[429, 200], 1, false)]
#[case::moved(&[301, 200], 1, false)]
#[case::fails_then_refuses(&[500, 403, 200], 2, false)]
#[tokio::test(start_paused = true)]
async fn three_attempts_for_5xx_and_no_answer_one_for_the_rest(
    #[case] statuses: &[u16],
    #[case] attempts: u32,
    #[case] delivered: bool,
) {
    let mut statuses: VecDeque<u16> = statuses.iter().copied().collect();
    let (made, result) = three_times(WAITS, || ready(answers(statuses.pop_front().unwrap()))).await;
    assert_eq!((made, result.is_ok()), (attempts, delivered));
}

/// The waits are about 2 s and 4 s as in the public watcher, but jittered.
#[tokio::test(start_paused = true)]
async fn waits_are_around_two_and_four_seconds_and_differ() {
    let mut seen = Vec::new();
    for _ in 0..20 {
        let mut times = Vec::new();
        let post = || {
            times.push(Instant::now());
            ready(answers(500))
        };
        let (attempts, _) = three_times(WAITS, post).await;
        assert_eq!(attempts, 3);
        let waits: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs_f64())
            .collect();
        let [first, second] = waits.try_into().unwrap();
        assert!((1.9..=2.41).contains(&first), "{first}");
        assert!((3.8..=4.81).contains(&second), "{second}");
        seen.push(first);
    }
    seen.dedup();
    assert!(seen.len() > 10, "{seen:?}");
}
