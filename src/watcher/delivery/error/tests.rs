use rstest::rstest;

use super::*;

#[rstest]
#[case::unauthorized(401, FailureScope::Manager, false)]
#[case::forbidden(403, FailureScope::Manager, false)]
#[case::no_route(404, FailureScope::Manager, true)]
#[case::no_method(405, FailureScope::Manager, true)]
#[case::too_many(429, FailureScope::Manager, false)]
#[case::moved(301, FailureScope::Manager, false)]
#[case::broken(500, FailureScope::Manager, false)]
#[case::no_listener(503, FailureScope::Manager, false)]
#[case::beyond_http(999, FailureScope::Manager, false)]
#[case::not_understood(400, FailureScope::Event, true)]
#[case::too_large(413, FailureScope::Event, true)]
#[case::head_too_large(431, FailureScope::Event, true)]
fn a_status_has_its_scope(
    #[case] status: u16,
    #[case] scope: FailureScope,
    #[case] is_permanent: bool,
) {
    let retry_after = None;
    let error = PostError::Refused {
        status,
        retry_after,
    };
    assert_eq!((error.scope(), error.is_permanent()), (scope, is_permanent));
}

/// If a listener hangs, its gateway still works. A timeout before the request concerns the connection to KCP.
#[test]
fn a_timeout_has_its_scope() {
    let error = PostError::Unreachable(StepTimeout::Connect.into());
    assert_eq!(error.scope(), FailureScope::All);
    assert_eq!(PostError::NoResponse.scope(), FailureScope::NoResponse);
}
