//! The leader against an API server that is a list of answers; what the watches would say is set by hand.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::Config;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::*;
use crate::certificate::testing::{entry_with, epoch, material, secret_of, settings};
use crate::certificate::{Bundle, Pair, Plan, plan};

const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/rt-bootstrapper-webhook-cert";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/rt-bootstrapper-mutating-webhook-configuration";

/// Answers with what was applied, in a new version, after the refusals that it was given.
#[derive(Default)]
struct ApiServer {
    version: AtomicU64,
    refusals: Mutex<Vec<u16>>,
}

impl Respond for ApiServer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        if let Some(code) = self.refusals.lock().unwrap().pop() {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "no", "reason": "Conflict", "code": code,
            });
            return ResponseTemplate::new(code).set_body_json(status);
        }
        let version = 100 + self.version.fetch_add(1, Ordering::Relaxed);
        let mut body: Value = serde_json::from_slice(&request.body).unwrap();
        body["metadata"]["resourceVersion"] = json!(version.to_string());
        ResponseTemplate::new(200).set_body_json(body)
    }
}

/// A leader at work.
struct Leader {
    server: MockServer,
    secret: Cell<StoredSecret>,
    entry: Cell<LiveEntry>,
    shutdown: CancellationToken,
    work: tokio::task::JoinHandle<()>,
}

impl Leader {
    async fn begin(
        secret: Sighting<StoredSecret>,
        entry: Sighting<LiveEntry>,
        refusals: Vec<u16>,
    ) -> Self {
        let server = MockServer::start().await;
        let api_server = ApiServer {
            refusals: Mutex::new(refusals),
            ..ApiServer::default()
        };
        Mock::given(any())
            .respond_with(api_server)
            .mount(&server)
            .await;
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = Config::new(server.uri().parse().unwrap());
        let keeper = Keeper {
            client: Client::try_from(config).unwrap(),
            settings: Arc::new(settings()),
            metrics: CertificateMetrics::default(),
        };
        let cells = (Cell::default(), Cell::default());
        cells.0.set(secret);
        cells.1.set(entry);
        let shutdown = CancellationToken::new();
        let work = keep_issued(keeper, cells.0.clone(), cells.1.clone(), shutdown.clone());
        Self {
            server,
            secret: cells.0,
            entry: cells.1,
            shutdown,
            work: tokio::spawn(work),
        }
    }

    /// The writes so far, once there are that many and what was written is known.
    async fn writes(&self, count: usize) -> Vec<Request> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let requests = self.server.received_requests().await.unwrap();
            assert!(
                requests.len() <= count,
                "one write too many: {:?}",
                paths(&requests)
            );
            if requests.len() == count && self.settled() {
                return requests;
            }
            assert!(Instant::now() < deadline, "only {:?}", paths(&requests));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn settled(&self) -> bool {
        let (secret, entry) = (self.secret.seen(), self.entry.seen());
        next(&secret, &entry, &settings(), Timestamp::now())
            .action
            .is_none()
    }

    fn stored(&self) -> Material {
        match self.secret.seen() {
            Sighting::Present(secret) => secret.material.clone(),
            other => panic!("no Secret: {}", matches!(other, Sighting::Absent)),
        }
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.work.await.unwrap();
    }
}

fn paths(requests: &[Request]) -> Vec<String> {
    requests
        .iter()
        .map(|request| format!("{} {}", request.method, request.url.path()))
        .collect()
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn bundle_in(request: &Request) -> Vec<u8> {
    let bundle = body(request)["webhooks"][0]["clientConfig"]["caBundle"].clone();
    serde_json::from_value::<k8s_openapi::ByteString>(bundle)
        .unwrap()
        .0
}

fn live(ca_bundle: impl Into<Vec<u8>>) -> Sighting<LiveEntry> {
    Some(entry_with(ca_bundle)).into()
}

#[tokio::test]
async fn the_first_certificate_is_stored_and_then_published() {
    let leader = Leader::begin(Sighting::Absent, live(""), vec![]).await;
    let writes = leader.writes(2).await;
    assert_eq!(
        paths(&writes),
        [format!("PATCH {SECRET}"), format!("PATCH {CONFIGURATION}")]
    );
    for write in &writes {
        let query = write.url.query().unwrap();
        assert!(
            query.contains("fieldManager=rt-bootstrapper-webhook"),
            "{query}"
        );
        assert!(query.contains("force=true"), "{query}");
        assert_eq!(
            write.headers["content-type"],
            "application/apply-patch+yaml"
        );
    }
    let secret = body(&writes[0]);
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(
        secret["metadata"],
        json!({ "name": "rt-bootstrapper-webhook-cert" })
    );
    let keys: Vec<_> = secret["data"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"]);
    // Nothing but our field, and only of the state that was seen.
    let stored = leader.stored();
    let expected = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "rt-bootstrapper-mutating-webhook-configuration", "resourceVersion": "41" },
        "webhooks": [{
            "name": "mpod-v1.kb.io",
            "clientConfig": { "caBundle": k8s_openapi::ByteString(stored.authorities.clone()) },
        }],
    });
    assert_eq!(body(&writes[1]), expected);
    let kept = plan(Some(&secret_of(stored)), Timestamp::now(), &settings());
    assert!(matches!(kept, Plan::Keep { .. }), "{kept:?}");
    leader.end().await;
}

#[tokio::test]
async fn nothing_is_written_until_something_differs_and_then_once() {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let leader = Leader::begin(secret, live(material.authorities.clone()), vec![]).await;
    // Sightings that change nothing.
    leader.writes(0).await;
    leader.entry.set(Sighting::Absent);
    leader.writes(0).await;
    leader.entry.set(live(material.authorities.clone()));
    leader.writes(0).await;

    leader.entry.set(live("somebody else's"));
    let writes = leader.writes(1).await;
    assert_eq!(paths(&writes), [format!("PATCH {CONFIGURATION}")]);
    assert_eq!(bundle_in(&writes[0]), material.authorities);
    leader.end().await;
}

#[tokio::test]
async fn without_an_entry_the_configuration_is_left_alone_until_there_is_one() {
    let leader = Leader::begin(Sighting::Absent, Sighting::Absent, vec![]).await;
    let writes = leader.writes(1).await;
    assert_eq!(paths(&writes), [format!("PATCH {SECRET}")]);
    leader.entry.set(live(""));
    let writes = leader.writes(2).await;
    assert_eq!(bundle_in(&writes[1]), leader.stored().authorities);
    leader.end().await;
}

#[tokio::test]
async fn a_deleted_secret_is_made_again_with_the_lost_authority_still_trusted() {
    let lost = material(epoch());
    let secret = Some(secret_of(lost.clone())).into();
    let leader = Leader::begin(secret, live(lost.authorities.clone()), vec![]).await;
    leader.writes(0).await;
    leader.secret.set(Sighting::Absent);
    let writes = leader.writes(2).await;
    assert_eq!(
        paths(&writes),
        [format!("PATCH {SECRET}"), format!("PATCH {CONFIGURATION}")]
    );
    let published = Bundle::read(&bundle_in(&writes[1]));
    let name = settings().server_name().to_owned();
    for material in [&lost, &leader.stored()] {
        let pair = Pair::read(material).unwrap();
        assert!(pair.verified_by(&published, &name, Timestamp::now()));
    }
    leader.end().await;
}

#[tokio::test]
async fn garbage_is_replaced_in_the_state_that_was_seen() {
    let garbage = secret_of(Material::default());
    let leader = Leader::begin(Some(garbage).into(), Sighting::Absent, vec![]).await;
    let writes = leader.writes(1).await;
    assert_eq!(body(&writes[0])["metadata"]["resourceVersion"], "7");
    leader.end().await;
}

#[tokio::test]
async fn a_secret_that_cannot_be_changed_is_deleted_first() {
    let mut opaque = secret_of(material(epoch()));
    opaque.kind = Some("Opaque".to_owned());
    let leader = Leader::begin(Some(opaque).into(), Sighting::Absent, vec![]).await;
    let writes = leader.writes(2).await;
    assert_eq!(
        paths(&writes),
        [format!("DELETE {SECRET}"), format!("PATCH {SECRET}")]
    );
    let preconditions = json!({ "uid": "uid-1", "resourceVersion": "7" });
    assert_eq!(body(&writes[0])["preconditions"], preconditions);
    assert_eq!(body(&writes[1])["metadata"].get("resourceVersion"), None);
    leader.end().await;
}

#[tokio::test]
async fn a_conflict_is_tried_again() {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let leader = Leader::begin(secret, live(""), vec![409, 422]).await;
    let writes = leader.writes(3).await;
    assert_eq!(paths(&writes), vec![format!("PATCH {CONFIGURATION}"); 3]);
    assert_eq!(bundle_in(&writes[2]), material.authorities);
    leader.end().await;
}

#[tokio::test]
async fn files_publish_their_authorities_and_write_no_secret() {
    let server = MockServer::start().await;
    Mock::given(any())
        .respond_with(ApiServer::default())
        .mount(&server)
        .await;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = Config::new(server.uri().parse().unwrap());
    let keeper = Keeper {
        client: Client::try_from(config).unwrap(),
        settings: Arc::new(settings()),
        metrics: CertificateMetrics::default(),
    };
    let (files, entry) = (Cell::default(), Cell::<LiveEntry>::default());
    entry.set(live(""));
    let shutdown = CancellationToken::new();
    let work = publish_authorities(keeper, files.clone(), entry.clone(), shutdown.clone());
    let work = tokio::spawn(work);
    let material = material(epoch());
    let half = Material {
        key: Vec::new(),
        ..material.clone()
    };
    let mut entries = entry.subscribe();
    files.set(Some(half).into());
    files.set(Some(material.clone()).into());
    tokio::time::timeout(Duration::from_secs(20), entries.changed())
        .await
        .unwrap()
        .unwrap();
    shutdown.cancel();
    work.await.unwrap();
    let writes = server.received_requests().await.unwrap();
    assert_eq!(paths(&writes), [format!("PATCH {CONFIGURATION}")]);
    assert_eq!(bundle_in(&writes[0]), material.authorities);
}
