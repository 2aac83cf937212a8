use super::*;

#[test]
fn ages_spread_over_the_last_quarter() {
    let limits = Limits {
        age: Some(Duration::from_secs(400)),
        ..Limits::default()
    };
    let ages: Vec<_> = (0..1000).filter_map(|_| limits.draw_age()).collect();
    for quarter in 0..4 {
        let from = Duration::from_secs(300 + 25 * quarter);
        let within = from..=from + Duration::from_secs(25);
        let share = ages.iter().filter(|&age| within.contains(age)).count();
        assert!(share > 100, "{share} of 1000 in quarter {quarter}");
    }
    assert_eq!(ages.len(), 1000);
    assert_eq!(Limits::default().draw_age(), None);
}
