use chassis::readiness::Readiness;
use testkit::metrics::Samples;

use super::*;
use crate::certificate::Bundle;
use crate::certificate::testing::{
    after, entry_with, epoch, material, present as sighted, settings, successor,
};

/// A replica, and what an observer sees of it.
struct Replica {
    state: State,
    readiness: Readiness,
}

impl Replica {
    fn start() -> Self {
        let readiness = Readiness::default();
        let state = State::new(Presenter {
            tls: TlsHandle::empty(),
            condition: readiness.condition("certificate"),
            metrics: CertificateMetrics::default(),
            settings: Arc::new(settings()),
        });
        Self { state, readiness }
    }

    fn look(&mut self, source: &Sighting<Material>, entry: &Sighting<LiveEntry>, now: Timestamp) {
        self.state.look(source, entry, now);
    }

    fn serves(&self, material: &Material) -> bool {
        let chain = Pair::read(material).unwrap().chain().to_vec();
        let served = self.state.served.as_ref();
        assert_eq!(self.state.presenter.tls.is_empty(), served.is_none());
        served.is_some_and(|served| served.chain == chain)
    }

    fn report(&self) -> (bool, String) {
        self.readiness.report()
    }
}

#[test]
fn nothing_is_served_and_nobody_is_ready_before_there_is_a_certificate() {
    let mut replica = Replica::start();
    for (source, reason) in [
        (Sighting::Unknown, "the certificate was not read yet"),
        (Sighting::Absent, "certificate is missing"),
        (
            sighted(Material::default()),
            "the certificate cannot be used",
        ),
    ] {
        replica.look(&source, &Sighting::Absent, epoch());
        assert!(replica.state.presenter.tls.is_empty());
        assert_eq!(
            replica.report(),
            (false, format!("certificate: not ready: {reason}\n"))
        );
    }
}

#[test]
fn a_rotation_waits_for_the_live_bundle() {
    let now = epoch();
    let old = material(now);
    let new = successor(now, Bundle::read(&old.authorities));
    let bundle_of = |material: &Material| sighted(entry_with(material.authorities.clone()));
    let mut replica = Replica::start();

    replica.look(&sighted(old.clone()), &sighted(entry_with("")), now);
    assert!(
        replica.state.presenter.tls.is_empty(),
        "callers would refuse it"
    );
    replica.look(&sighted(old.clone()), &bundle_of(&old), now);
    assert!(replica.serves(&old));
    assert_eq!(replica.report(), (true, "certificate: ready\n".to_owned()));

    replica.look(&sighted(new.clone()), &bundle_of(&old), now);
    assert!(replica.serves(&old), "the bundle is not live yet");
    assert!(replica.report().0);
    replica.look(&sighted(new.clone()), &bundle_of(&new), now);
    assert!(replica.serves(&new));
    assert_eq!(replica.report(), (true, "certificate: ready\n".to_owned()));
}

#[test]
fn the_last_good_leaf_stays_and_the_trouble_is_told_once() {
    let now = epoch();
    let good = material(now);
    let live = sighted(entry_with(good.authorities.clone()));
    let mut replica = Replica::start();
    replica.look(&sighted(good.clone()), &live, now);
    let garbage = Material {
        key: b"garbage".to_vec(),
        ..good.clone()
    };
    for _ in 0..3 {
        replica.look(&sighted(garbage.clone()), &live, now);
    }
    assert!(replica.serves(&good));
    let (ready, report) = replica.report();
    assert!(
        ready && report.contains("cannot be used; the last valid one is still served"),
        "{report}"
    );

    replica.look(&Sighting::Absent, &live, now);
    assert!(replica.serves(&good));
    let (ready, report) = replica.report();
    assert!(
        ready && report.contains("certificate is missing; the last"),
        "{report}"
    );

    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = CertificateMetrics::register(&mut registry);
    metrics.serving_until(now);
    replica.state.presenter.metrics = metrics;
    for _ in 0..2 {
        replica.look(&sighted(garbage.clone()), &live, now);
    }
    let samples = Samples::of(&registry);
    let deferrals = "certificate_activation_deferrals_total{reason=\"unusable\"}";
    assert_eq!(samples.value(deferrals), Some(1.0));
    let expiry = std::time::Duration::from_secs(now.as_second().try_into().unwrap());
    let shown = samples.value("certificate_expiration_timestamp_seconds");
    assert_eq!(shown, Some(expiry.as_secs_f64()));
}

#[test]
fn an_expired_leaf_is_still_served_but_not_ready() {
    let start = epoch();
    let only = material(start);
    let live = sighted(entry_with(only.authorities.clone()));
    let mut replica = Replica::start();
    replica.look(&sighted(only.clone()), &live, start);
    replica.look(&sighted(only.clone()), &live, after(start, 91));
    assert!(replica.serves(&only));
    let (ready, report) = replica.report();
    assert!(!ready && report.contains("expired at"), "{report}");
}
