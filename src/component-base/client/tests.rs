use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Barrier;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use testkit::metrics::Samples;

use super::*;

/// Time limit of a request with a response. It is not reached even on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit of a request without a response.
const SHORT: Duration = Duration::from_millis(500);

fn metered() -> (Registry, RequestMetrics) {
    let mut registry = Registry::default();
    let requests = RequestMetrics::register(&mut registry);
    (registry, requests)
}

/// Returns whether the error is [`DeadlineExceeded`], or was caused by it. An error while connecting is a source of the
/// error of the pool.
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<DeadlineExceeded>() || error.source().is_some_and(is_timeout)
}

/// Returns the counted requests, as `{labels} count`.
fn counted(registry: &Registry) -> Vec<String> {
    let samples = Samples::of(registry);
    let requests = samples.matching("rest_client_requests_total");
    let mut lines: Vec<String> = requests.map(|it| it.to_string()).collect();
    lines.sort();
    lines
}

fn kubeconfig(cluster: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u, namespace: home}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{token: t0ken}}}}]\n"
    );
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn options(kubeconfig: &tempfile::NamedTempFile) -> ClientOptions {
    ClientOptions {
        kubeconfig: Some(kubeconfig.path().to_owned()),
        user_agent: "test/1".to_owned(),
        timeout: TIMEOUT,
    }
}

async fn connected(server: &MockServer, timeout: Duration) -> (Registry, Client) {
    let file = kubeconfig(&format!("server: \"{}\"", server.uri()));
    let (registry, requests) = metered();
    let mut options = options(&file);
    options.timeout = timeout;
    let client = connect(options, &requests).await.unwrap();
    (registry, client)
}

/// Returns the time until the next keepalive probe of each established connection to a port; `None` without one. The kernel
/// reports the kind of the timer, which is 2, and hundredths of seconds.
fn probes(port: u16) -> Vec<Option<Duration>> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().map(|row| row.split_whitespace().collect());
    let rows = rows.filter(|row: &Vec<&str>| row[2].ends_with(&format!(":{port:04X}")));
    let established = rows.filter(|row| row[3] == "01");
    let timers = established.map(|row| row[5].strip_prefix("02:"));
    let time = |it: &str| Duration::from_millis(u64::from_str_radix(it, 16).unwrap() * 10);
    timers.map(|it| it.map(time)).collect()
}

#[tokio::test]
async fn a_connection_that_only_receives_is_probed() {
    let server = MockServer::start().await;
    let (_, client) = connected(&server, TIMEOUT).await;
    client.apiserver_version().await.unwrap_err();
    let [Some(next)] = probes(server.address().port())[..] else {
        panic!("not probed");
    };
    assert!(next <= KEEPALIVE, "{next:?}");
}

#[tokio::test]
async fn a_kubeconfig_leads_to_a_server_with_credentials_and_our_name() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .and(path("/api/v1/namespaces/home/configmaps/c"))
        .and(header("user-agent", "test/1"))
        .and(header("authorization", "Bearer t0ken"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"metadata": {"name": "c"}})))
        .expect(1)
        .mount(&server)
        .await;
    let (registry, client) = connected(&server, TIMEOUT).await;
    let found = Api::<ConfigMap>::default_namespaced(client).get("c").await;
    assert_eq!(found.unwrap().metadata.name.as_deref(), Some("c"));
    assert_eq!(
        counted(&registry),
        ["{code=\"200\",method=\"GET\",resource=\"configmaps\"} 1"]
    );
}

/// The first file has no cluster and an empty context, and the other files have one of the same name. Empty paths and missing files
/// are skipped.
#[tokio::test]
async fn a_list_of_kubeconfigs_is_merged_and_the_first_value_counts() {
    let server = MockServer::start().await;
    Mock::given(header("authorization", "Bearer t0ken"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"metadata": {"name": "c"}})))
        .expect(1)
        .mount(&server)
        .await;
    let folder = tempfile::tempdir().unwrap();
    let without_clusters = std::fs::read_to_string(kubeconfig("").path()).unwrap();
    let without_clusters = without_clusters
        .replace("clusters: [{name: c, cluster: {}}]\n", "")
        .replace("current-context: c\n", "current-context: \"\"\n");
    std::fs::write(folder.path().join("first"), without_clusters).unwrap();
    let second = kubeconfig(&format!("server: \"{}\"", server.uri()));
    let third = kubeconfig("server: \"http://nowhere\"");
    let files = ["first", "missing"].map(|it| folder.path().join(it));
    let files = files.iter().map(PathBuf::as_path);
    let files = files.chain([Path::new(""), second.path(), third.path()]);
    let mut options = options(&second);
    options.kubeconfig = Some(std::env::join_paths(files).unwrap().into());
    let (_registry, requests) = metered();
    let client = connect(options, &requests).await.unwrap();
    let found = Api::<ConfigMap>::default_namespaced(client).get("c").await;
    assert_eq!(found.unwrap().metadata.name.as_deref(), Some("c"));
}

#[tokio::test]
async fn a_busy_server_is_asked_once() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .respond_with(ResponseTemplate::new(503))
        .expect(1)
        .mount(&server)
        .await;
    let (registry, client) = connected(&server, TIMEOUT).await;
    Api::<Secret>::all(client)
        .list(&kube::api::ListParams::default())
        .await
        .unwrap_err();
    assert_eq!(
        counted(&registry),
        ["{code=\"503\",method=\"GET\",resource=\"secrets\"} 1"]
    );
}

#[tokio::test]
async fn a_silent_server_costs_one_timeout() {
    let server = MockServer::start().await;
    Mock::given(method("PATCH"))
        .respond_with(ResponseTemplate::new(200).set_delay(Duration::from_mins(1)))
        .mount(&server)
        .await;
    let (registry, client) = connected(&server, SHORT).await;
    let body = json!({"apiVersion": "v1", "kind": "Secret"});
    let error = Api::<Secret>::namespaced(client, "a")
        .patch("s", &PatchParams::apply("me"), &Patch::Apply(body))
        .await
        .unwrap_err();
    assert!(is_timeout(&error), "{error:?}");
    assert_eq!(
        counted(&registry),
        ["{code=\"<error>\",method=\"PATCH\",resource=\"secrets\"} 1"]
    );
}

#[tokio::test]
async fn a_server_that_does_not_shake_hands_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let file = kubeconfig(&format!(
        "server: \"https://{address}\", insecure-skip-tls-verify: true"
    ));
    let (_registry, requests) = metered();
    let mut options = options(&file);
    options.timeout = SHORT;
    let client = connect(options, &requests).await.unwrap();
    let error = client.apiserver_version().await.unwrap_err();
    assert!(is_timeout(&error), "{error:?}");
}

#[tokio::test]
async fn a_closed_port_is_an_error_of_its_own() {
    // The socket does not listen, so connections are refused, and it keeps the port from other tests.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = closed.local_addr().unwrap();
    let file = kubeconfig(&format!("server: \"http://{address}\""));
    let (registry, requests) = metered();
    let client = connect(options(&file), &requests).await.unwrap();
    let error = client.apiserver_version().await.unwrap_err();
    assert!(!is_timeout(&error), "{error:?}");
    assert_eq!(
        counted(&registry),
        ["{code=\"<error>\",method=\"GET\",resource=\"other\"} 1"]
    );
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_before_anything_is_sent() {
    let (_registry, requests) = metered();
    let proxied = kubeconfig("server: \"http://a\", proxy-url: \"http://me:pa55@proxy:1\"");
    let refused = connect(options(&proxied), &requests).await.err();
    assert!(matches!(refused, Some(ClientError::Proxy(proxy)) if proxy == "proxy:1"));

    let file = kubeconfig("server: \"http://a\"");
    let mut strange = options(&file);
    strange.user_agent = "two\nlines".to_owned();
    let refused = connect(strange, &requests).await.err();
    assert!(matches!(refused, Some(ClientError::UserAgent(_))));

    let mut missing = options(&file);
    missing.kubeconfig = Some(PathBuf::from("/nowhere/config"));
    let refused = connect(missing, &requests).await.err().unwrap();
    let refused = refused.to_string();
    assert!(refused.starts_with("kubeconfig /nowhere/config: failed to read"));
}

/// Returns the error, and each of its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |it| it.source());
    let texts: Vec<String> = sources.map(|it| format!("{it}\n{it:?}")).collect();
    texts.join("\n")
}

#[tokio::test]
async fn an_error_does_not_quote_the_kubeconfig_or_a_credential_plugin() {
    let (_registry, requests) = metered();
    let malformed = kubeconfig("server: [\"http://a\"], user: {token: t0ken}");
    let error = connect(options(&malformed), &requests).await.err().unwrap();
    assert!(
        error
            .to_string()
            .ends_with("line 5: not a valid kubeconfig"),
        "{error}"
    );
    assert!(!chain(&error).contains("t0ken"), "{error}");

    // The first run of a plugin happens before the first request.
    for (output, expected) in [
        ("echo 'status: {token: [t0ken]}'", "not an ExecCredential"),
        ("echo t0ken; echo t0ken >&2; exit 3", "exit status: 3"),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", output], "interactiveMode": "Never"});
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://a"}}],
            "users": [{"name": "u", "user": {"exec": exec}}]});
        file.write_all(text.to_string().as_bytes()).unwrap();
        let error = connect(options(&file), &requests).await.err().unwrap();
        assert!(chain(&error).contains(expected), "{}", chain(&error));
        assert!(!chain(&error).contains("t0ken"), "{}", chain(&error));
    }
}

/// Returns a transport that responds to each request with the head at once and the body after a delay.
fn slow_body(delay: Duration) -> (Registry, Client) {
    let (registry, requests) = metered();
    let transport = tower::service_fn(move |_: Request<Body>| async move {
        let line = stream::once(async move {
            tokio::time::sleep(delay).await;
            Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{}\n")))
        });
        Ok::<_, BoxError>(Response::new(BodyExt::boxed_unsync(StreamBody::new(
            line.boxed(),
        ))))
    });
    let client = with_transport(transport, "default", Duration::from_secs(10), &requests);
    (registry, client)
}

async fn read(client: &Client, uri: &str) -> kube::Result<Bytes> {
    let request = Request::get(uri).body(Body::empty()).unwrap();
    client
        .send(request)
        .await?
        .into_body()
        .collect_bytes()
        .await
}

#[tokio::test(start_paused = true)]
async fn the_body_counts_unless_it_is_a_stream() {
    let (_registry, client) = slow_body(Duration::from_mins(10));
    let error = read(&client, "/api/v1/pods").await.unwrap_err();
    assert!(is_timeout(&error), "{error:?}");
    let watched = read(&client, "/api/v1/pods?watch=true").await.unwrap();
    assert_eq!(watched, "{}\n");

    let (_registry, client) = slow_body(Duration::from_secs(9));
    assert_eq!(read(&client, "/api/v1/pods").await.unwrap(), "{}\n");
}

#[tokio::test(start_paused = true)]
async fn even_a_watch_must_begin() {
    let (registry, requests) = metered();
    let silent = tower::service_fn(async |_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, BoxError>>().await
    });
    let client = with_transport(silent, "default", SHORT, &requests);
    let began = tokio::time::Instant::now();
    let error = read(&client, "/api/v1/pods?watch=true").await.unwrap_err();
    assert!(is_timeout(&error), "{error:?}");
    assert_eq!(
        began.elapsed().as_secs(),
        deadline::STREAM_HEAD_TIMEOUT.as_secs()
    );
    assert_eq!(
        counted(&registry),
        ["{code=\"<error>\",method=\"GET\",resource=\"pods\"} 1"]
    );
}

#[tokio::test]
async fn a_request_that_is_dropped_is_counted_too() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let (registry, requests) = metered();
    let silent = tower::service_fn(async |_: Request<Body>| {
        ASKED.store(true, Ordering::SeqCst);
        std::future::pending::<Result<Response<Body>, BoxError>>().await
    });
    let client = with_transport(silent, "default", TIMEOUT, &requests);
    {
        let mut call = pin!(read(&client, "/api/v1/pods"));
        while !ASKED.load(Ordering::SeqCst) {
            assert!((&mut call).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(
        counted(&registry),
        ["{code=\"<error>\",method=\"GET\",resource=\"pods\"} 1"]
    );
}

/// Returns an API server that responds after sixteen requests have arrived, and its number of connections.
async fn answers_sixteen_at_once() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::<AtomicUsize>::default();
    let count = accepted.clone();
    let together = Arc::new(Barrier::new(16));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let together = together.clone();
            let answer = move |_| {
                let together = together.clone();
                async move {
                    together.wait().await;
                    Ok::<_, std::convert::Infallible>(Response::new("{}".to_owned()))
                }
            };
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(serving);
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn calls_made_at_once_leave_their_connections_to_the_next_ones() {
    let (address, accepted) = answers_sixteen_at_once().await;
    let (_, requests) = metered();
    let kubeconfig = kubeconfig(&format!("server: '{address}'"));
    let client = connect(options(&kubeconfig), &requests).await.unwrap();
    for _ in 0..6 {
        let calls = (0..16).map(|_| read(&client, "/api"));
        for answer in futures::future::join_all(calls).await {
            answer.unwrap();
        }
    }
    // A connection may not have returned to the pool yet when the next call requests one.
    let accepted = accepted.load(Ordering::SeqCst);
    assert!((16..32).contains(&accepted), "{accepted}");
}
