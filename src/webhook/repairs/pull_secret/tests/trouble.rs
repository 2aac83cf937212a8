use super::super::apply::ApplyError;
use super::super::trouble::Troubles;

fn forbidden() -> ApplyError {
    ApplyError::Forbidden("no".to_owned())
}

#[test]
fn a_namespace_that_fails_is_news_once_and_so_is_its_recovery() {
    let mut troubles = Troubles::default();
    assert!(troubles.failed("a", &ApplyError::NotTaken));
    assert!(!troubles.failed("a", &ApplyError::NotTaken));
    assert!(troubles.failed("b", &ApplyError::NotTaken));
    assert!(troubles.failed("a", &ApplyError::Unreadable));
    assert_eq!(troubles.settled("a"), Some("unreadable"));
    assert_eq!(troubles.settled("a"), None);
    assert!(troubles.failed("a", &ApplyError::NotTaken));
}

#[test]
fn a_missing_right_is_news_once_for_all_namespaces() {
    let mut troubles = Troubles::default();
    assert!(troubles.failed("a", &forbidden()));
    assert!(!troubles.failed("b", &forbidden()));
    assert_eq!(troubles.settled("a"), None);
    assert_eq!(troubles.settled("b"), Some("forbidden"));
    assert!(troubles.failed("b", &forbidden()));
}

#[test]
fn somebody_elses_change_is_no_news() {
    assert!(!Troubles::default().failed("a", &ApplyError::Changed));
}
