//! The leader against an API server that stores the webhook configuration; what the watches would say is set by hand.

use std::sync::{Mutex, MutexGuard};

use k8s_openapi::ByteString;
use kube::Config;
use rstest::rstest;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::*;
use crate::certificate::testing::{entry_with, epoch, material, secret_of, settings};
use crate::certificate::{Bundle, Pair, Plan, Presenter, plan, serve_from_files};

const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/rt-bootstrapper-webhook-cert";
const ENTRY: &str = "mpod-v1.kb.io";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/rt-bootstrapper-mutating-webhook-configuration";

/// Answers with what was written, in a new version, after the refusals that it was given.
#[derive(Clone)]
struct ApiServer(Arc<Mutex<Stored>>);

struct Stored {
    version: u32,
    configuration: Value,
    refusals: Vec<u16>,
}

impl ApiServer {
    /// Holds the configuration that [`entry_with`] is a sighting of.
    fn new(refusals: Vec<u16>) -> Self {
        Self(Arc::new(Mutex::new(Stored {
            version: 100,
            configuration: configuration("41", &[(ENTRY, "")]),
            refusals,
        })))
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap()
    }

    /// What the watch would say of the configuration.
    fn sighting(&self) -> Sighting<LiveEntry> {
        let stored = self.stored().configuration.clone();
        LiveEntry::read(&serde_json::from_value(stored).unwrap(), ENTRY).into()
    }
}

impl Respond for ApiServer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut stored = self.stored();
        if let Some(code) = stored.refusals.pop() {
            return refusal(code);
        }
        stored.version += 1;
        let version = json!(stored.version.to_string());
        let mut object = match (request.url.path(), content_type(request)) {
            (CONFIGURATION, "application/json-patch+json") => {
                let mut object = stored.configuration.clone();
                let patch: json_patch::Patch = serde_json::from_slice(&request.body).unwrap();
                // A test that fails is answered like any other patch that cannot be applied.
                if json_patch::patch(&mut object, &patch).is_err() {
                    return refusal(422);
                }
                object
            }
            // An apply takes away what the same manager applied before: `rules` are required.
            (CONFIGURATION, _) if stored.configuration.to_string().contains("f:rules") => {
                return refusal(422);
            }
            (_, _) => body(request),
        };
        object["metadata"]["resourceVersion"] = version;
        if request.url.path() == CONFIGURATION {
            stored.configuration = object.clone();
        }
        ResponseTemplate::new(200).set_body_json(object)
    }
}

fn refusal(code: u16) -> ResponseTemplate {
    ResponseTemplate::new(code).set_body_json(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no",
        "reason": "Conflict", "code": code,
    }))
}

fn content_type(request: &Request) -> &str {
    request.headers["content-type"].to_str().unwrap()
}

/// A configuration of these entries, each with its bundle.
fn configuration(version: &str, entries: &[(&str, &str)]) -> Value {
    let entries = entries.iter().map(|(name, bundle)| {
        let bundle = ByteString(bundle.as_bytes().to_vec());
        json!({
            "name": name, "clientConfig": {"caBundle": bundle, "url": "https://webhook.test"},
            "rules": [{"operations": ["CREATE"]}], "sideEffects": "None", "admissionReviewVersions": ["v1"],
        })
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "rt-bootstrapper-mutating-webhook-configuration", "resourceVersion": version},
        "webhooks": entries.collect::<Vec<_>>(),
    })
}

/// A leader at work.
struct Leader {
    server: MockServer,
    api_server: ApiServer,
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
        Self::begin_with(secret, entry, ApiServer::new(refusals)).await
    }

    async fn begin_with(
        secret: Sighting<StoredSecret>,
        entry: Sighting<LiveEntry>,
        api_server: ApiServer,
    ) -> Self {
        let server = MockServer::start().await;
        Mock::given(any())
            .respond_with(api_server.clone())
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
            api_server,
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
    bytes(&body(request)[2]["value"])
}

fn bytes(encoded: &Value) -> Vec<u8> {
    let bytes: ByteString = serde_json::from_value(encoded.clone()).unwrap();
    bytes.0
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
    }
    assert!(writes[0].url.query().unwrap().contains("force=true"));
    assert_eq!(content_type(&writes[0]), "application/apply-patch+yaml");
    assert_eq!(content_type(&writes[1]), "application/json-patch+json");
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
    let expected = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": "41"},
        {"op": "test", "path": "/webhooks/0/name", "value": "mpod-v1.kb.io"},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ByteString(stored.authorities.clone())},
    ]);
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
async fn an_entry_that_another_writer_moved_is_looked_up_again_and_no_other_is_overwritten() {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let api_server = ApiServer::new(vec![]);
    api_server.stored().configuration = configuration("41", &[("other.io", "theirs"), (ENTRY, "")]);
    let seen = api_server.sighting();
    api_server.stored().configuration = configuration("42", &[(ENTRY, ""), ("other.io", "theirs")]);
    let leader = Leader::begin_with(secret, seen, api_server.clone()).await;

    let deadline = Instant::now() + Duration::from_secs(20);
    while leader.server.received_requests().await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "nothing was written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let untouched = configuration("42", &[(ENTRY, ""), ("other.io", "theirs")]);
    assert_eq!(api_server.stored().configuration, untouched);

    leader.entry.set(api_server.sighting());
    while leader.api_server.stored().configuration == untouched {
        assert!(Instant::now() < deadline, "not published");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    leader.end().await;
    let stored = api_server.stored().configuration.clone();
    let bundle = |index: usize| bytes(&stored["webhooks"][index]["clientConfig"]["caBundle"]);
    assert_eq!(bundle(0), material.authorities);
    assert_eq!(bundle(1), b"theirs");
}

#[rstest]
#[case::the_bundle_as_an_earlier_release_did(json!({"f:clientConfig": {"f:caBundle": {}}}))]
#[case::the_whole_entry_as_a_user_did(json!({"f:clientConfig": {"f:url": {}}, "f:rules": {}}))]
#[tokio::test]
async fn whatever_was_applied_under_the_same_field_manager_does_not_keep_the_bundle_away(
    #[case] applied: Value,
) {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let api_server = ApiServer::new(vec![]);
    let fields = json!({"f:webhooks": {(format!(r#"k:{{"name":"{ENTRY}"}}"#)): applied}});
    let managed = json!([{
        "manager": "rt-bootstrapper-webhook", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
    api_server.stored().configuration["metadata"]["managedFields"] = managed;
    let leader = Leader::begin_with(secret, api_server.sighting(), api_server).await;
    let writes = leader.writes(1).await;
    assert_eq!(bundle_in(&writes[0]), material.authorities);
    let entry = leader.api_server.stored().configuration["webhooks"][0].clone();
    assert_eq!(entry["clientConfig"]["url"], "https://webhook.test");
    assert_eq!(entry["rules"], json!([{"operations": ["CREATE"]}]));
    leader.end().await;
}

#[tokio::test]
async fn files_publish_their_authorities_and_write_no_secret() {
    let server = MockServer::start().await;
    Mock::given(any())
        .respond_with(ApiServer::new(vec![]))
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

/// A replica that serves certificate files.
struct Replica {
    files: Cell<Material>,
    readiness: chassis::readiness::Readiness,
}

impl Replica {
    fn start(material: &Material, entry: &Cell<LiveEntry>, shutdown: &CancellationToken) -> Self {
        let (files, readiness) = (Cell::default(), chassis::readiness::Readiness::default());
        files.set(Some(material.clone()).into());
        let presenter = Presenter {
            tls: serve::TlsHandle::empty(),
            condition: readiness.condition("certificate"),
            metrics: CertificateMetrics::default(),
            settings: Arc::new(settings()),
        };
        tokio::spawn(serve_from_files(
            presenter,
            files.clone(),
            entry.clone(),
            shutdown.clone(),
        ));
        Self { files, readiness }
    }

    /// Waits until it serves what its files hold, and callers trust that.
    async fn is_trusted(&self) {
        let trusted = (true, "certificate: ready\n".to_owned());
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.readiness.report() != trusted {
            let report = self.readiness.report();
            assert!(Instant::now() < deadline, "{report:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn replicas_with_old_and_new_files_are_both_trusted_while_the_authority_changes() {
    let (old, new) = (material(epoch()), material(epoch()));
    let entry = Cell::<LiveEntry>::default();
    entry.set(live(old.authorities.clone()));
    let shutdown = CancellationToken::new();
    let first = Replica::start(&old, &entry, &shutdown);
    let second = Replica::start(&old, &entry, &shutdown);
    first.is_trusted().await;
    second.is_trusted().await;

    let server = MockServer::start().await;
    Mock::given(any())
        .respond_with(ApiServer::new(vec![]))
        .mount(&server)
        .await;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let keeper = Keeper {
        client: Client::try_from(Config::new(server.uri().parse().unwrap())).unwrap(),
        settings: Arc::new(settings()),
        metrics: CertificateMetrics::default(),
    };
    let work = publish_authorities(keeper, first.files.clone(), entry.clone(), shutdown.clone());
    let work = tokio::spawn(work);
    let mut entries = entry.subscribe();
    first.files.set(Some(new.clone()).into());
    tokio::time::timeout(Duration::from_secs(20), entries.changed())
        .await
        .unwrap()
        .unwrap();
    first.is_trusted().await;
    second.is_trusted().await;

    // The kubelet of the second one comes later; nothing is written for that.
    second.files.set(Some(new.clone()).into());
    second.is_trusted().await;
    shutdown.cancel();
    work.await.unwrap();
    let writes = server.received_requests().await.unwrap();
    assert_eq!(writes.len(), 1);
    let published = Bundle::read(&bundle_in(&writes[0]));
    for material in [&old, &new] {
        let pair = Pair::read(material).unwrap();
        assert!(pair.verified_by(&published, settings().server_name(), Timestamp::now()));
    }
}
