use futures::stream;
use rstest::rstest;

use super::*;

#[rstest]
#[case::no_list_yet(vec![Event::Init], &[])]
#[case::half_a_list(vec![Event::Init, Event::InitApply("a")], &[])]
#[case::empty_list(vec![Event::Init, Event::InitDone], &[None])]
#[case::listed(vec![Event::Init, Event::InitApply("a"), Event::InitDone], &[Some("a")])]
#[case::list_that_failed_half_way(
    vec![Event::Init, Event::InitApply("a"), Event::Init, Event::InitDone], &[None]
)]
#[case::known_through_a_relist(vec![Event::Apply("a"), Event::Init, Event::InitApply("b")], &[Some("a")])]
#[case::changed(vec![Event::Apply("a"), Event::Apply("b")], &[Some("a"), Some("b")])]
#[case::deleted(vec![Event::Apply("a"), Event::Delete("a")], &[Some("a"), None])]
#[case::deleted_during_an_outage(
    vec![Event::Init, Event::InitApply("a"), Event::InitDone, Event::Init, Event::InitDone], &[Some("a"), None]
)]
#[tokio::test]
async fn yields_the_object_of_complete_lists_and_events(
    #[case] events: Vec<Event<&'static str>>,
    #[case] expected: &[Option<&str>],
) {
    let seen: Vec<_> = states(stream::iter(events)).collect().await;
    assert_eq!(seen, expected);
}
