use std::future::poll_fn;
use std::task::Poll;

use rstest::rstest;

use super::*;

/// Returns whether the blocks can be taken immediately.
async fn takes(share: &mut BudgetShare, blocks: usize, complete: bool) -> bool {
    let mut take = pin!(share.take(blocks, complete));
    poll_fn(|context| Poll::Ready(take.as_mut().poll(context) == Poll::Ready(Ok(())))).await
}

async fn is_evicted(share: &BudgetShare) -> bool {
    let mut evicted = pin!(share.evicted());
    poll_fn(|context| Poll::Ready(evicted.as_mut().poll(context).is_ready())).await
}

#[tokio::test]
async fn a_share_is_given_back_on_drop() {
    let budget = BodyBudget::new(10 * BLOCK, Statistics::default());
    let mut first = budget.share();
    assert!(takes(&mut first, 10, true).await);
    let mut second = budget.share();
    assert!(!takes(&mut second, 1, true).await);
    drop(first);
    assert!(takes(&mut second, 10, true).await);
}

#[tokio::test]
async fn the_body_that_began_first_and_is_incomplete_is_evicted() {
    let budget = BodyBudget::new(10 * BLOCK, Statistics::default());
    let mut complete = budget.share();
    assert!(takes(&mut complete, 3, true).await);
    let (mut first, mut second) = (budget.share(), budget.share());
    assert!(takes(&mut first, 3, false).await && takes(&mut second, 4, false).await);

    let mut newest = budget.share();
    assert!(!takes(&mut newest, 2, true).await);
    assert!(is_evicted(&first).await && !is_evicted(&second).await);
    // The blocks that are about to be released are sufficient, so no other body is evicted.
    assert!(!takes(&mut newest, 2, true).await);
    assert!(!is_evicted(&second).await);
    drop(first);
    assert!(takes(&mut newest, 2, true).await);
}

#[tokio::test]
async fn bodies_that_are_handled_are_waited_for() {
    let budget = BodyBudget::new(10 * BLOCK, Statistics::default());
    let (mut handled, mut young) = (budget.share(), budget.share());
    assert!(takes(&mut handled, 8, true).await && takes(&mut young, 2, false).await);
    let mut newest = budget.share();
    // Evicting the incomplete body would not free enough blocks.
    assert!(!takes(&mut newest, 3, true).await);
    assert!(!is_evicted(&young).await);
    let waiting = tokio::spawn(async move { newest.take(3, true).await });
    drop(handled);
    assert_eq!(waiting.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_body_evicts_none_that_began_after_it() {
    let budget = BodyBudget::new(10 * BLOCK, Statistics::default());
    let (mut first, mut second) = (budget.share(), budget.share());
    assert!(takes(&mut first, 5, false).await && takes(&mut second, 5, false).await);
    assert!(!takes(&mut first, 1, false).await);
    assert!(first.is_waiting() && !is_evicted(&second).await);
    assert!(!takes(&mut second, 1, false).await);
    assert!(is_evicted(&first).await);
    assert!(
        !takes(&mut first, 0, true).await,
        "an evicted one is not completed"
    );
    drop(first);
    assert!(takes(&mut second, 1, false).await);
}

#[tokio::test]
async fn all_is_free_again_after_any_order_of_ends() {
    let budget = BodyBudget::new(10 * BLOCK, Statistics::default());
    let mut shares: Vec<_> = (0..4).map(|_| budget.share()).collect();
    for share in &mut shares {
        takes(share, 3, false).await;
    }
    shares.swap(0, 2);
    drop(shares);
    let state = budget.state();
    assert_eq!(
        (state.free, state.evicted, state.incomplete.len()),
        (10, 0, 0)
    );
}

#[rstest]
#[case::one_block(&[BLOCK])]
#[case::within_a_block(&[3, 4])]
#[case::over_the_end_of_a_block(&[BLOCK - 1, 2, 2 * BLOCK])]
#[tokio::test]
async fn a_body_in_pieces_comes_out_as_it_went_in(#[case] pieces: &[usize]) {
    let budget = BodyBudget::new(10 * BLOCK, Statistics::default());
    // The blocks of an earlier body are reused, without their content.
    let mut former = budget.share();
    former.append(&vec![0; 3 * BLOCK]).await.unwrap();
    drop(former);
    let mut share = budget.share();
    let mut body = Vec::new();
    for (number, length) in (1..).zip(pieces) {
        let piece = vec![number; *length];
        share.append(&piece).await.unwrap();
        body.extend_from_slice(&piece);
    }
    assert_eq!(share.complete().await.unwrap(), body);
    let state = budget.state();
    assert_eq!(10 - state.free, body.len().div_ceil(BLOCK));
    assert_eq!(state.spare.len(), 3.max(body.len().div_ceil(BLOCK)));
}
