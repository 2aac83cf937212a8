use std::collections::HashMap;

use super::super::progress::{Progress, note_failure};
use super::super::writer::WriteError;

/// Two tracked namespaces.
struct Tracked(HashMap<String, Progress>);

impl Tracked {
    fn new() -> Self {
        Self(
            ["a", "b"]
                .map(|it| (it.to_owned(), Progress::default()))
                .into(),
        )
    }

    /// Returns whether the failure is logged.
    fn failed(&mut self, namespace: &str, error: &WriteError) -> bool {
        let logged = note_failure(&mut self.0, namespace, Some(error));
        assert!(logged.is_none_or(|it| it == error.reason()));
        logged.is_some()
    }

    fn recovered(&mut self, namespace: &str) -> Option<&'static str> {
        note_failure(&mut self.0, namespace, None)
    }
}

fn forbidden() -> WriteError {
    WriteError::Forbidden("no".to_owned())
}

#[test]
fn a_namespace_that_fails_is_news_once_and_so_is_its_recovery() {
    let mut errors = Tracked::new();
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
    let mut errors = Tracked::new();
    assert!(errors.failed("a", &forbidden()));
    assert!(!errors.failed("b", &forbidden()));
    assert_eq!(errors.recovered("a"), None);
    assert_eq!(errors.recovered("b"), Some("forbidden"));
    assert!(errors.failed("b", &forbidden()));
}

#[test]
fn a_change_of_another_client_is_not_logged() {
    assert!(!Tracked::new().failed("a", &WriteError::Changed));
}
