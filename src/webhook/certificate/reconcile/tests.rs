//! Tests of the leader with an API server that stores the webhook configuration. The tests set the state of the watches directly.

use k8s_openapi::ByteString;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Recorded};
use testkit::until::{holds, until};

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::*;
use crate::certificate::ENTRY;
use crate::certificate::fixtures::{entry_with, epoch, material, secret_of, settings};
use crate::certificate::plan::renew_at;
use crate::certificate::server::expiration;
use crate::certificate::{Bundle, CertificateServer, Material};
use crate::certificate::{CertificateMetrics, LiveEntry, Observed, StoredCertificate};

const SECRET: &str = "apply secrets kyma-system/rt-bootstrapper-webhook-cert";
/// Time limit of waits. It is never reached if the test succeeds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time in which a write that is due is sent, also after a failed write.
const SETTLED: Duration = Duration::from_secs(10);
const NAME: &str = "rt-bootstrapper-mutating-webhook-configuration";
const CONFIGURATION: &str =
    "patch mutatingwebhookconfigurations rt-bootstrapper-mutating-webhook-configuration";

/// Returns an API server with the configuration that [`entry_with`] describes.
fn api_server() -> ApiServer {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    server.store().restore_version(40);
    server.put(&configuration(&[(ENTRY, "")]));
    server
}

/// Returns the same API server with the Secret that [`secret_of`] describes.
fn with_secret(kind: &str) -> ApiServer {
    let server = api_server();
    server.store().restore_version(6);
    server.put(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": "rt-bootstrapper-webhook-cert", "namespace": "kyma-system", "uid": "uid-1"},
    }));
    server
}

fn stored(server: &ApiServer) -> Value {
    let stored = server.get("mutatingwebhookconfigurations", "", NAME);
    stored.unwrap()
}

/// Returns the configuration as the watch observes it.
fn sighting(server: &ApiServer) -> Observed<LiveEntry> {
    LiveEntry::read(serde_json::from_value(stored(server)).unwrap(), ENTRY).into()
}

/// Returns a configuration with these entries, each with its bundle.
fn configuration(entries: &[(&str, &str)]) -> Value {
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
        "metadata": {"name": NAME},
        "webhooks": entries.collect::<Vec<_>>(),
    })
}

fn reconciler(server: &ApiServer, from_files: bool) -> Certificates {
    Certificates {
        client: server.client(),
        settings: Arc::new(settings()),
        metrics: CertificateMetrics::default(),
        certificate: watch::Sender::default(),
        entry: watch::Sender::default(),
        files: from_files.then(PathBuf::new),
    }
}

/// A running leader. Its tests pause the clock, which then only advances when the leader has nothing to do.
struct Leader {
    server: ApiServer,
    secret: watch::Sender<Observed<StoredCertificate>>,
    entry: watch::Sender<Observed<LiveEntry>>,
    shutdown: CancellationToken,
    work: tokio::task::JoinHandle<()>,
}

impl Leader {
    fn begin(secret: Observed<StoredCertificate>, entry: Observed<LiveEntry>) -> Self {
        Self::begin_with(secret, entry, api_server())
    }

    fn begin_with(
        secret: Observed<StoredCertificate>,
        entry: Observed<LiveEntry>,
        server: ApiServer,
    ) -> Self {
        let reconciler = reconciler(&server, false);
        reconciler.certificate.send_replace(secret);
        reconciler.entry.send_replace(entry);
        let shutdown = CancellationToken::new();
        Self {
            server,
            secret: reconciler.certificate.clone(),
            entry: reconciler.entry.clone(),
            shutdown: shutdown.clone(),
            work: tokio::spawn(reconciler.reconcile(shutdown)),
        }
    }

    /// Returns the writes, after this number of writes, when their results are observed and no other write follows.
    async fn writes(&self, count: usize) -> Vec<Recorded> {
        let written = async || {
            let requests = self.server.requests();
            let is_known = requests.len() == count && self.settled();
            let written = is_known.then_some(requests);
            written.ok_or_else(|| format!("{:?}", self.server.writes()))
        };
        let writes = until("the writes are known", PATIENCE, written).await;
        let writes = writes.unwrap();
        holds("no other write", SETTLED, written).await.unwrap();
        writes
    }

    fn settled(&self) -> bool {
        let (secret, entry) = (self.secret.borrow(), self.entry.borrow());
        SecretPlanner::default()
            .plan(&secret, &entry, &settings(), SystemTime::now())
            .write
            .is_none()
    }

    fn stored(&self) -> Material {
        match &*self.secret.borrow() {
            Observed::Present(secret) => secret.material.clone(),
            other => panic!("no Secret: {}", matches!(other, Observed::Absent)),
        }
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.work.await.unwrap();
    }
}

fn texts(requests: &[Recorded]) -> Vec<String> {
    let texts = requests.iter().map(|it| it.asked.to_string());
    texts.collect()
}

fn bundle_in(request: &Recorded) -> Vec<u8> {
    bytes(&request.body[2]["value"])
}

fn bytes(encoded: &Value) -> Vec<u8> {
    let bytes: ByteString = serde_json::from_value(encoded.clone()).unwrap();
    bytes.0
}

fn live(ca_bundle: impl Into<Vec<u8>>) -> Observed<LiveEntry> {
    Some(entry_with(ca_bundle)).into()
}

#[tokio::test(start_paused = true)]
async fn the_first_certificate_is_stored_and_then_published() {
    let leader = Leader::begin(Observed::Absent, live(""));
    let writes = leader.writes(2).await;
    assert_eq!(texts(&writes), [SECRET, CONFIGURATION]);
    for write in &writes {
        let manager = "fieldManager=rt-bootstrapper-webhook";
        assert!(write.uri.contains(manager), "{}", write.uri);
    }
    assert!(writes[0].uri.contains("force=true"));
    let secret = &writes[0].body;
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
    // The patch contains only this field, and only applies to the observed state.
    let stored = leader.stored();
    let expected = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": "41"},
        {"op": "test", "path": "/webhooks/0/name", "value": "mpod-v1.kb.io"},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ByteString(stored.authorities.clone())},
    ]);
    assert_eq!(writes[1].body, expected);
    let renewal = renew_at(Some(&secret_of(stored)), SystemTime::now(), &settings());
    assert!(renewal.is_ok(), "{renewal:?}");
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_until_something_differs_and_then_once() {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let leader = Leader::begin(secret, live(material.authorities.clone()));
    // Neither the same entry again nor a missing entry changes anything.
    leader.writes(0).await;
    leader.entry.send_replace(Observed::Absent);
    leader.writes(0).await;
    leader
        .entry
        .send_replace(live(material.authorities.clone()));
    leader.writes(0).await;

    leader.entry.send_replace(live("that of another"));
    let writes = leader.writes(1).await;
    assert_eq!(texts(&writes), [CONFIGURATION]);
    assert_eq!(bundle_in(&writes[0]), material.authorities);
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_entry_the_configuration_is_left_alone_until_there_is_one() {
    let leader = Leader::begin(Observed::Absent, Observed::Absent);
    let writes = leader.writes(1).await;
    assert_eq!(texts(&writes), [SECRET]);
    leader.entry.send_replace(live(""));
    let writes = leader.writes(2).await;
    assert_eq!(bundle_in(&writes[1]), leader.stored().authorities);
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_is_made_again_with_the_lost_authority_still_trusted() {
    let lost = material(epoch());
    let secret = Some(secret_of(lost.clone())).into();
    let leader = Leader::begin(secret, live(lost.authorities.clone()));
    leader.writes(0).await;
    leader.secret.send_replace(Observed::Absent);
    let writes = leader.writes(2).await;
    assert_eq!(texts(&writes), [SECRET, CONFIGURATION]);
    let published = Bundle::read(&bundle_in(&writes[1]));
    let name = settings().server_name().to_owned();
    for material in [&lost, &leader.stored()] {
        let pair = material.pair().unwrap();
        assert!(published.verifies(&pair, &name, SystemTime::now()));
    }
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn garbage_is_replaced_in_the_state_that_was_seen() {
    let garbage = secret_of(Material::default());
    let server = with_secret("kubernetes.io/tls");
    let leader = Leader::begin_with(Some(garbage).into(), Observed::Absent, server);
    let writes = leader.writes(1).await;
    assert_eq!(writes[0].body["metadata"]["resourceVersion"], "7");
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_changed_is_deleted_first() {
    let mut opaque = secret_of(material(epoch()));
    opaque.type_ = Some("Opaque".to_owned());
    let server = with_secret("Opaque");
    let leader = Leader::begin_with(Some(opaque).into(), Observed::Absent, server);
    let writes = leader.writes(2).await;
    assert_eq!(
        texts(&writes),
        [SECRET.replace("apply", "delete").as_str(), SECRET]
    );
    let preconditions = json!({ "uid": "uid-1", "resourceVersion": "7" });
    assert_eq!(writes[0].body["preconditions"], preconditions);
    assert_eq!(writes[1].body["metadata"].get("resourceVersion"), None);
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again() {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let server = api_server();
    for code in [409, 422] {
        let _refused = server.fault(CONFIGURATION).times(1).status(code);
    }
    let leader = Leader::begin_with(secret, live(""), server);
    let writes = leader.writes(3).await;
    assert_eq!(texts(&writes), [CONFIGURATION; 3]);
    assert_eq!(bundle_in(&writes[2]), material.authorities);
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_another_writer_moved_is_looked_up_again_and_no_other_is_overwritten() {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let server = api_server();
    server.put(&configuration(&[("other.io", "theirs"), (ENTRY, "")]));
    let seen = sighting(&server);
    server.put(&configuration(&[(ENTRY, ""), ("other.io", "theirs")]));
    let untouched = stored(&server);
    let leader = Leader::begin_with(secret, seen, server.clone());
    // The request is recorded before it is executed.
    let first = until("a response", PATIENCE, || async {
        server.requests().first()?.status
    });
    assert_eq!(first.await.unwrap(), 422);
    assert_eq!(stored(&server), untouched);

    leader.entry.send_replace(sighting(&server));
    until("the bundle is published", PATIENCE, || async {
        stored(&server) != untouched
    })
    .await
    .unwrap();
    leader.end().await;
    let stored = stored(&server);
    let bundle = |index: usize| bytes(&stored["webhooks"][index]["clientConfig"]["caBundle"]);
    assert_eq!(bundle(0), material.authorities);
    assert_eq!(bundle(1), b"theirs");
}

#[rstest]
#[case::the_bundle_as_an_earlier_release_did(json!({"f:clientConfig": {"f:caBundle": {}}}))]
#[case::the_whole_entry_as_a_user_did(json!({"f:clientConfig": {"f:url": {}}, "f:rules": {}}))]
#[tokio::test(start_paused = true)]
async fn whatever_was_applied_under_the_same_field_manager_does_not_keep_the_bundle_away(
    #[case] applied: Value,
) {
    let material = material(epoch());
    let secret = Some(secret_of(material.clone())).into();
    let server = api_server();
    let fields = json!({"f:webhooks": {(format!(r#"k:{{"name":"{ENTRY}"}}"#)): applied}});
    let managed = json!([{
        "manager": "rt-bootstrapper-webhook", "operation": "Apply", "apiVersion": "admissionregistration.k8s.io/v1",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
    server.edit("mutatingwebhookconfigurations", ("", NAME), |it| {
        it["metadata"]["managedFields"] = managed;
    });
    let leader = Leader::begin_with(secret, sighting(&server), server);
    let writes = leader.writes(1).await;
    assert_eq!(bundle_in(&writes[0]), material.authorities);
    let entry = stored(&leader.server)["webhooks"][0].clone();
    assert_eq!(entry["clientConfig"]["url"], "https://webhook.test");
    assert_eq!(entry["rules"], json!([{"operations": ["CREATE"]}]));
    leader.end().await;
}

#[tokio::test]
async fn files_publish_their_authorities_and_write_no_secret() {
    let server = api_server();
    let reconciler = reconciler(&server, true);
    let (files, entry) = (reconciler.certificate.clone(), reconciler.entry.clone());
    entry.send_replace(live(""));
    let shutdown = CancellationToken::new();
    let work = tokio::spawn(reconciler.reconcile(shutdown.clone()));
    let material = material(epoch());
    let half = Material {
        key: Vec::new().into(),
        ..material.clone()
    };
    let mut entries = entry.subscribe();
    files.send_replace(stored_in_files(&half));
    files.send_replace(stored_in_files(&material));
    tokio::time::timeout(PATIENCE, entries.changed())
        .await
        .unwrap()
        .unwrap();
    shutdown.cancel();
    work.await.unwrap();
    let writes = server.requests();
    assert_eq!(texts(&writes), [CONFIGURATION]);
    assert_eq!(bundle_in(&writes[0]), material.authorities);
}

fn stored_in_files(material: &Material) -> Observed<StoredCertificate> {
    Some(material.clone().into()).into()
}

/// A replica that serves certificate files.
struct Replica {
    files: watch::Sender<Observed<StoredCertificate>>,
    readiness: component_base::readiness::Readiness,
    metrics: CertificateMetrics,
}

impl Replica {
    fn start(material: &Material, entry: &watch::Sender<Observed<LiveEntry>>) -> Self {
        let readiness = component_base::readiness::Readiness::default();
        let files = watch::Sender::new(stored_in_files(material));
        let metrics = CertificateMetrics::default();
        let server = CertificateServer {
            tls: serve::TlsHandle::empty(),
            condition: readiness.check("certificate"),
            metrics: metrics.clone(),
            settings: Arc::new(settings()),
            active: None,
            deferred: None,
            next: None,
            valid_from: None,
        };
        tokio::spawn(server.run(files.subscribe(), entry.subscribe()));
        Self {
            files,
            readiness,
            metrics,
        }
    }

    /// Waits until the replica serves this certificate, which is identified by its expiry, and API servers trust it.
    async fn serves(&self, material: &Material) {
        let expires = expiration(&material.pair().unwrap()).as_second();
        let trusted = (true, "certificate: ready\n".to_owned());
        let serves = async || {
            let (served, report) = (self.metrics.expiration.get(), self.readiness.report());
            let is_served = served == expires && report == trusted;
            is_served
                .then_some(())
                .ok_or(format!("{served} {report:?}"))
        };
        until("it serves the certificate", PATIENCE, serves)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn replicas_with_old_and_new_files_are_both_trusted_while_the_authority_changes() {
    let old = material(epoch());
    let new = material(epoch() + Duration::from_mins(30));
    let server = api_server();
    let mut reconciler = reconciler(&server, true);
    let entry = reconciler.entry.clone();
    entry.send_replace(live(old.authorities.clone()));
    let shutdown = CancellationToken::new();
    let first = Replica::start(&old, &entry);
    let second = Replica::start(&old, &entry);
    first.serves(&old).await;
    second.serves(&old).await;

    reconciler.certificate = first.files.clone();
    let work = tokio::spawn(reconciler.reconcile(shutdown.clone()));
    let mut entries = entry.subscribe();
    first.files.send_replace(stored_in_files(&new));
    tokio::time::timeout(PATIENCE, entries.changed())
        .await
        .unwrap()
        .unwrap();
    first.serves(&new).await;
    second.serves(&old).await;

    // The kubelet of the second replica updates the files later. This causes no write.
    second.files.send_replace(stored_in_files(&new));
    second.serves(&new).await;
    shutdown.cancel();
    work.await.unwrap();
    let writes = server.requests();
    assert_eq!(writes.len(), 1);
    let published = Bundle::read(&bundle_in(&writes[0]));
    for material in [&old, &new] {
        let pair = material.pair().unwrap();
        assert!(published.verifies(&pair, settings().server_name(), SystemTime::now()));
    }
}
