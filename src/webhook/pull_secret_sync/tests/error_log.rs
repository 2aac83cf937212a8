use super::super::progress::ErrorLog;
use super::super::writer::WriteError;

fn forbidden() -> WriteError {
    WriteError::Forbidden("no".to_owned())
}

#[test]
fn a_namespace_that_fails_is_news_once_and_so_is_its_recovery() {
    let mut errors = ErrorLog::default();
    assert!(errors.failed("a", &WriteError::NotTaken));
    assert!(!errors.failed("a", &WriteError::NotTaken));
    assert!(errors.failed("b", &WriteError::NotTaken));
    assert!(errors.failed("a", &WriteError::Unreadable));
    assert_eq!(errors.recovered("a"), Some("unreadable"));
    assert_eq!(errors.recovered("a"), None);
    assert!(errors.failed("a", &WriteError::NotTaken));
}

#[test]
fn a_missing_right_is_news_once_for_all_namespaces() {
    let mut errors = ErrorLog::default();
    assert!(errors.failed("a", &forbidden()));
    assert!(!errors.failed("b", &forbidden()));
    assert_eq!(errors.recovered("a"), None);
    assert_eq!(errors.recovered("b"), Some("forbidden"));
    assert!(errors.failed("b", &forbidden()));
}

#[test]
fn somebody_elses_change_is_no_news() {
    assert!(!ErrorLog::default().failed("a", &WriteError::Changed));
}
