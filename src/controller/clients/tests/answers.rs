//! Tests of the results that callers get for responses, and for missing responses.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures::stream;
use http_body_util::BodyExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::tls::{Body, streamed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn status(reason: &str, message: &str, causes: &Value) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason,
        "details": {"causes": causes},
    })
    .to_string()
}

fn not_found(kind: &str) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
        "details": {"name": "shop", "kind": kind},
    })
    .to_string()
}

/// Sends a GET that fails, and returns its error. Checks that exactly one request was sent.
async fn failing(
    config: ServerConfig,
    code: u16,
    headers: &'static str,
    body: String,
) -> CallError {
    let server = TlsServer::answering(config, move |_| {
        let mut response = answer(code, body.clone());
        if !headers.is_empty() {
            response
                .headers_mut()
                .insert("retry-after", headers.parse().unwrap());
        }
        async { response }
    })
    .await
    .unwrap();
    let error = Env::new(|_| ()).open(&server).list(POD).await.unwrap_err();
    assert_eq!(server.requests(), 1, "a hidden retry");
    error
}

#[rstest]
#[case::moved(302, "", false, None)]
#[case::unauthorized(401, "", false, None)]
#[case::forbidden(403, "", false, None)]
#[case::not_found(404, "", false, None)]
#[case::request_timeout(408, "", true, None)]
#[case::conflict(409, "", true, None)]
#[case::gone(410, "", false, None)]
#[case::invalid(422, "", false, None)]
#[case::throttled(429, "7", true, Some(7))]
#[case::throttled_without_a_time(429, "", true, None)]
#[case::throttled_for_a_year(429, "31536000", true, Some(300))]
#[case::internal(500, "", true, None)]
#[case::bad_gateway(502, "", true, None)]
#[case::unavailable(503, "3", true, Some(3))]
#[case::gateway_timeout(504, "", true, None)]
#[tokio::test]
async fn a_status_decides_about_retries(
    #[values(H1, H2)] alpn: &'static [&'static str],
    #[case] code: u16,
    #[case] retry_after: &'static str,
    #[case] transient: bool,
    #[case] seconds: Option<u64>,
) {
    let error = failing(speaking(alpn), code, retry_after, String::new()).await;
    assert_eq!(error.transient(), transient, "{error:?}");
    assert_eq!(error.retry_after(), seconds.map(Duration::from_secs));
}

#[rstest]
#[case::stale_write(409, status("Conflict", "", &json!([])), true)]
#[case::name_taken(409, status("AlreadyExists", "", &json!([])), false)]
#[case::field_owned(409, status("Conflict", "", &json!([{"reason": "FieldManagerConflict", "field": ".data.a"}])), false)]
#[tokio::test]
async fn a_conflict_is_transient_if_reading_again_helps(
    #[case] code: u16,
    #[case] body: String,
    #[case] transient: bool,
) {
    let error = failing(speaking(BOTH), code, "", body).await;
    assert!(matches!(error, CallError::Conflict { .. }), "{error:?}");
    assert_eq!(error.transient(), transient);
}

#[rstest]
#[case::quota(status("Forbidden", "pods \"a\" is forbidden: exceeded quota: q", &json!([])), "Forbidden: a quota is exceeded")]
#[case::rights(status("Forbidden", "User \"x\" cannot get", &json!([])), "Forbidden")]
#[case::terminating(status("Forbidden", "", &json!([{"reason": "NamespaceTerminating", "field": "metadata.namespace"}])), "Forbidden: the namespace is being deleted")]
#[case::no_namespace(not_found("namespaces"), "NotFound: the namespace does not exist")]
#[case::another_object(not_found("rolebindings"), "NotFound")]
#[case::fields(status("Invalid", "", &json!([{"field": "spec.a"}, {"field": "spec.b[0]"}])), "Invalid: spec.a, spec.b[0]")]
#[case::a_reason_that_is_a_text(status("go to https://evil.example", "", &json!([{"field": "a b"}])), "no reason given")]
#[case::html("<html>".to_owned(), "no reason given")]
#[case::another_kind(json!({"kind": "Pod", "reason": "Forbidden"}).to_string(), "no reason given")]
#[tokio::test]
async fn a_refusal_says_why(#[case] body: String, #[case] shown: &str) {
    let error = failing(speaking(BOTH), 403, "", body).await;
    let CallError::Refused { status, reason } = error else {
        panic!("{error:?}");
    };
    assert_eq!((status, reason.to_string().as_str()), (403, shown));
}

#[tokio::test]
async fn what_is_shown_repeats_nothing_and_quotes_nothing() {
    let body = status("Forbidden", "SECRET", &json!([]));
    let mut errors = vec![failing(speaking(BOTH), 403, "", body).await];
    errors.push(failing(speaking(BOTH), 200, "", "SECRET".to_owned()).await);
    errors.push(failing(speaking(BOTH), 500, "", "SECRET".to_owned()).await);
    errors.push(CallError::Tls(TlsError::Expired));
    errors.push(CallError::Unreachable(TransportError::Name(
        io::ErrorKind::NotFound.into(),
    )));
    for error in errors {
        let mut texts = vec![error.to_string()];
        let mut next = error.source();
        while let Some(cause) = next {
            texts.push(cause.to_string());
            next = cause.source();
        }
        for (index, outer) in texts.iter().enumerate() {
            assert!(!outer.contains("SECRET") && !format!("{error:?}").contains("SECRET"));
            let repeats = texts[index + 1..].iter().any(|it| outer.contains(it));
            assert!(!repeats, "{texts:?}");
        }
    }
}

#[rstest]
#[tokio::test]
async fn absence_is_an_answer(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = TlsServer::answering(speaking(alpn), |_| async { answer(404, "") });
    let server = server.await.unwrap();
    let remote = Env::new(|_| ()).open(&server);
    assert_eq!(remote.get(POD).await.unwrap(), None);
    assert!(!remote.delete(POD, None, false).await.unwrap());
    let missing = remote.apply(POD, &Arc::default(), "us", true).await;
    assert!(matches!(
        missing,
        Err(CallError::Refused { status: 404, .. })
    ));
    assert_eq!(server.opened(), 1);
}

/// Returns the request as the server received it.
async fn told(request: http::Request<hyper::body::Incoming>) -> Value {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).map(|it| it.to_str().unwrap());
    let body = body.collect().await.unwrap().to_bytes();
    json!({
        "method": head.method.as_str(),
        "path": head.uri.path_and_query().unwrap().as_str(),
        "authority": head.uri.authority().map(http::uri::Authority::as_str).or(header("host")),
        "type": header("content-type"),
        "authorization": header("authorization"),
        "agent": header("user-agent"),
        "encodings": header("accept-encoding"),
        "body": serde_json::from_slice::<Value>(&body).ok(),
    })
}

#[rstest]
#[tokio::test]
async fn requests_are_what_an_api_server_expects(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let written = Arc::new(Mutex::new(Vec::new()));
    let noted = written.clone();
    let server = TlsServer::answering(speaking(alpn), move |request| {
        let noted = noted.clone();
        async move {
            let said = told(request).await;
            noted.lock().unwrap().push(said.clone());
            answer(200, said.to_string())
        }
    })
    .await
    .unwrap();
    let last = || written.lock().unwrap().last().cloned().unwrap();
    let mut access = access(&server);
    access.server = format!("https://{}/k8s/clusters/c", server.address())
        .parse()
        .unwrap();
    let env = Env::new(|_| ());
    let remote = env.clients.open(access).unwrap();

    let got = remote.get("/api/v1/pods?limit=1").await.unwrap().unwrap();
    assert_eq!(got["method"], "GET");
    assert_eq!(got["path"], "/k8s/clusters/c/api/v1/pods?limit=1");
    assert_eq!(got["authority"], server.address().to_string());
    assert_eq!(got["authorization"], "Bearer token");
    assert_eq!(got["agent"], "rt-bootstrapper-controller");
    assert_eq!(
        (&got["encodings"], &got["type"]),
        (&Value::Null, &Value::Null)
    );

    let body = json!({"kind": "Pod"});
    remote
        .apply(POD, &Arc::new(body.clone()), "us", false)
        .await
        .unwrap();
    let applied = last();
    assert_eq!(applied["method"], "PATCH");
    assert_eq!(applied["type"], "application/apply-patch+yaml");
    assert_eq!(applied["body"], body);
    assert_eq!(
        applied["path"],
        format!("/k8s/clusters/c{POD}?fieldManager=us&force=false")
    );
    remote.json_patch(POD, &json!([])).await.unwrap();
    let patched = last();
    assert_eq!(
        (&patched["type"], &patched["body"]),
        (&json!("application/json-patch+json"), &json!([]))
    );
    let posted = remote.post("/api/v1/pods", &body).await.unwrap();
    assert_eq!(
        (&posted["method"], &posted["type"]),
        (&json!("POST"), &json!("application/json"))
    );
    assert!(
        remote
            .delete(POD, Some(&json!({"uid": "u"})), false)
            .await
            .unwrap()
    );
    assert_eq!(server.opened(), 1);
    assert_eq!(
        env.count("runtime_requests_total{verb=\"apply\",code=\"200\"}"),
        1
    );
}

#[rstest]
#[case::relative("api/v1/pods")]
#[case::blank("/api/v1/pods/a b")]
#[case::second_line("/api\r\nX-Remote-User: root")]
#[case::fragment("/api#x")]
#[tokio::test]
async fn a_bad_path_is_never_sent(#[case] path: &str) {
    let server = answering(BOTH).await;
    let error = Env::new(|_| ()).open(&server).get(path).await;
    assert!(matches!(error, Err(CallError::InvalidPath)), "{error:?}");
    assert_eq!(server.requests(), 0);
}

/// Returns a response with one chunk of a body, followed by the chunks of `rest`.
fn begun(
    rest: impl stream::Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> http::Response<Body> {
    use futures::StreamExt as _;
    streamed(stream::iter([Ok(Bytes::from_static(b"{"))]).chain(rest))
}

#[rstest]
#[case::closes_the_connection(H1, 2)]
#[case::ends_its_stream_only(H2, 1)]
#[tokio::test]
async fn a_reset_in_the_middle_of_a_body(
    #[case] alpn: &'static [&'static str],
    #[case] connections: usize,
) {
    let server = TlsServer::answering(speaking(alpn), |_| async {
        begun(stream::iter([Err(io::ErrorKind::ConnectionReset.into())]))
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    for calls in 1..3 {
        let error = remote.list(POD).await.unwrap_err();
        assert!(
            matches!(error, CallError::Unreachable(TransportError::Exchange(_)))
                && error.transient(),
            "{error:?}"
        );
        assert_eq!(server.requests(), calls);
    }
    assert_eq!(server.opened(), connections);
}

#[rstest]
#[tokio::test]
async fn a_stall(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = TlsServer::answering(speaking(alpn), |_| std::future::pending());
    timed_out(&server.await.unwrap()).await;
}

#[rstest]
#[tokio::test]
async fn a_body_that_never_ends(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = TlsServer::answering(speaking(alpn), |_| async { begun(stream::pending()) });
    timed_out(&server.await.unwrap()).await;
}

#[rstest]
#[tokio::test]
async fn a_slow_drip(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = TlsServer::answering(speaking(alpn), |_| async {
        begun(stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok(Bytes::from_static(b" ")), ()))
        }))
    });
    timed_out(&server.await.unwrap()).await;
}

/// Checks that the timeout of the whole call applies, not a timeout per byte.
async fn timed_out(server: &TlsServer) {
    let limit = Duration::from_millis(300);
    let env = Env::new(|it| it.call_timeout = limit);
    let remote = env.open(server);
    let begun = Instant::now();
    let error = remote.list(POD).await.unwrap_err();
    assert!(
        matches!(error, CallError::TimedOut(Phase::Answering, _)),
        "{error:?}"
    );
    assert!(error.transient());
    assert!(begun.elapsed() < limit * 100, "{:?}", begun.elapsed());
    assert_eq!(
        env.count("runtime_requests_total{verb=\"list\",code=\"<error>\"}"),
        1
    );
    drop(remote);
    until("the connection is closed", || server.open() == 0).await;
}

#[rstest]
#[tokio::test]
async fn too_large_an_answer(
    #[values(H1, H2)] alpn: &'static [&'static str],
    #[values(true, false)] announced: bool,
) {
    let server = TlsServer::answering(speaking(alpn), move |_| async move {
        if announced {
            return answer(200, vec![b' '; MAX_BODY + 1]);
        }
        streamed(stream::repeat_with(|| {
            Ok(Bytes::from_static(&[b' '; 8192]))
        }))
    })
    .await
    .unwrap();
    let error = Env::new(|_| ()).open(&server).list(POD).await;
    assert!(matches!(error, Err(CallError::Oversized)), "{error:?}");
}

#[rstest]
#[tokio::test]
async fn too_large_a_head(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = TlsServer::answering(speaking(alpn), |_| async {
        let mut response = answer(200, "{}");
        let value = "a".repeat(60_000).parse().unwrap();
        response.headers_mut().insert("x-large", value);
        response
    })
    .await
    .unwrap();
    let error = Env::new(|_| ()).open(&server).list(POD).await;
    assert!(matches!(error, Err(CallError::Unreachable(_))), "{error:?}");
}

#[tokio::test]
async fn a_success_that_is_not_json() {
    let error = failing(speaking(BOTH), 200, "", "<html>".to_owned()).await;
    assert!(matches!(error, CallError::NotJson) && !error.transient());
}

#[tokio::test]
async fn interim_answers_do_not_count() {
    let server = TlsServer::over_tls(speaking(H1), |mut stream, _| {
        Box::pin(async move {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(3);
            let last = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            let _ = stream
                .write_all(format!("{interim}{last}").as_bytes())
                .await;
            let _ = stream.read(&mut request).await;
        })
    })
    .await
    .unwrap();
    let answer = Env::new(|_| ()).open(&server).list(POD).await.unwrap();
    assert_eq!(answer, json!({}));
}
