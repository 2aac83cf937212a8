use component_base::readiness::Readiness;
use testkit::metrics::Samples;

use super::*;
use crate::certificate::Material;
use crate::certificate::fixtures::{
    DAY, after, entry_with, epoch, material, pair_for, present, settings, successor,
};

fn sighted(material: Material) -> Observed<StoredCertificate> {
    present(material.into())
}

/// A replica, and the state that an observer can read.
struct Replica {
    server: CertificateServer,
    readiness: Readiness,
}

impl Replica {
    fn start() -> Self {
        let readiness = Readiness::default();
        let server = CertificateServer {
            tls: TlsHandle::empty(),
            condition: readiness.check("certificate"),
            metrics: CertificateMetrics::default(),
            settings: Arc::new(settings()),
            active: None,
            deferred: None,
            next: None,
            valid_from: None,
        };
        Self { server, readiness }
    }

    fn look(
        &mut self,
        source: &Observed<StoredCertificate>,
        entry: &Observed<LiveEntry>,
        now: SystemTime,
    ) {
        self.server.update(source, entry, now);
    }

    fn serves(&self, material: &Material) -> bool {
        let chain = material.pair().unwrap().chain().to_vec();
        let active = self.server.active.as_ref();
        assert_eq!(self.server.tls.is_empty(), active.is_none());
        active.is_some_and(|active| active.chain() == chain)
    }

    fn report(&self) -> (bool, String) {
        self.readiness.report()
    }
}

#[test]
fn nothing_is_served_and_no_replica_is_ready_before_there_is_a_certificate() {
    let mut replica = Replica::start();
    for (source, reason) in [
        (Observed::Unknown, "the certificate was not read yet"),
        (Observed::Absent, "certificate is missing"),
        (
            sighted(Material::default()),
            "the certificate cannot be used",
        ),
    ] {
        replica.look(&source, &Observed::Absent, epoch());
        assert!(replica.server.tls.is_empty());
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
    let new = successor(now, &Bundle::read(&old.authorities));
    let bundle_of = |material: &Material| present(entry_with(material.authorities.clone()));
    let mut replica = Replica::start();

    replica.look(&sighted(old.clone()), &present(entry_with("")), now);
    assert!(replica.server.tls.is_empty(), "callers would refuse it");
    replica.look(&sighted(old.clone()), &bundle_of(&old), now);
    assert!(replica.serves(&old));
    assert_eq!(replica.report(), (true, "certificate: ready\n".to_owned()));

    replica.look(&sighted(new.clone()), &bundle_of(&old), now);
    assert!(replica.serves(&old), "the bundle is not live yet");
    assert!(replica.report().0);
    replica.look(&sighted(new.clone()), &bundle_of(&new), now);
    let almost = now + PROPAGATION - Duration::from_millis(1);
    replica.look(&sighted(new.clone()), &bundle_of(&new), almost);
    assert!(replica.serves(&old), "another API server may not know it");
    let (ready, report) = replica.report();
    assert!(
        ready && report.contains("may not have observed"),
        "{report}"
    );
    let later = now + PROPAGATION;
    replica.look(&sighted(new.clone()), &bundle_of(&new), later);
    assert!(replica.serves(&new));
    assert_eq!(replica.report(), (true, "certificate: ready\n".to_owned()));
}

#[test]
fn a_successor_waits_anew_after_the_bundle_did_not_verify_it() {
    let now = epoch();
    let old = material(now);
    let new = successor(now, &Bundle::read(&old.authorities));
    let bundle_of = |material: &Material| present(entry_with(material.authorities.clone()));
    let second = |count| now + Duration::from_secs(count);
    let mut replica = Replica::start();
    replica.look(&sighted(old.clone()), &bundle_of(&old), now);
    replica.look(&sighted(new.clone()), &bundle_of(&new), now);
    let left = PROPAGATION.checked_sub(Duration::from_secs(1));
    assert_eq!(replica.server.remaining(second(1)), left);
    replica.look(&sighted(new.clone()), &bundle_of(&old), second(1));
    assert_eq!(replica.server.remaining(second(1)), None);
    replica.look(&sighted(new.clone()), &bundle_of(&new), second(9));
    assert!(
        replica.serves(&old),
        "another API server may not know it again"
    );
    replica.look(&sighted(new.clone()), &bundle_of(&new), second(14));
    assert!(replica.serves(&new));
}

#[rstest::rstest]
#[case::when_the_active_one_is_not_trusted(true, Duration::ZERO)]
#[case::when_the_active_one_has_expired(false, DAY * 91)]
fn a_successor_is_served_at_once(#[case] is_bundle_replaced: bool, #[case] later: Duration) {
    let now = epoch();
    let old = material(now);
    let later = now + later;
    let (empty, carried) = (Bundle::default(), Bundle::read(&old.authorities));
    let new = successor(later, if is_bundle_replaced { &empty } else { &carried });
    let mut replica = Replica::start();
    let bundle = present(entry_with(old.authorities.clone()));
    replica.look(&sighted(old.clone()), &bundle, now);
    let bundle = present(entry_with(new.authorities.clone()));
    replica.look(&sighted(new.clone()), &bundle, later);
    assert!(replica.serves(&new));
}

#[test]
fn a_successor_waits_anew_after_another_and_not_for_a_clock_that_was_set_back() {
    let now = epoch();
    let old = material(now);
    let [first, second] = [(); 2].map(|()| successor(now, &Bundle::read(&old.authorities)));
    let all = [&old, &first, &second].map(|it| it.authorities.clone());
    let bundle = present(entry_with(all.concat()));
    let mut replica = Replica::start();
    replica.look(&sighted(old.clone()), &bundle, now);
    replica.look(&sighted(first), &bundle, now);
    let changed = now + PROPAGATION / 2;
    replica.look(&sighted(second.clone()), &bundle, changed);
    replica.look(&sighted(second.clone()), &bundle, now + PROPAGATION);
    assert!(replica.serves(&old));
    let set_back = now - Duration::from_mins(10);
    replica.look(&sighted(second.clone()), &bundle, set_back);
    assert!(replica.serves(&second));
}

/// The clock of the issuer is ahead. Pairs of the tests are backdated by an hour.
#[test]
fn a_certificate_that_is_not_valid_yet_is_looked_at_again_when_it_is() {
    let now = epoch();
    let skew = Duration::from_mins(10);
    let early = material(now + Duration::from_hours(1) + skew);
    let live = present(entry_with(early.authorities.clone()));
    let mut replica = Replica::start();
    replica.look(&sighted(early.clone()), &live, now);
    assert!(replica.server.tls.is_empty() && !replica.report().0);
    assert_eq!(replica.server.remaining(now), Some(skew));
    let set_forward = now + skew + skew;
    assert_eq!(replica.server.remaining(set_forward), Some(Duration::ZERO));
    replica.look(&sighted(early.clone()), &live, now + skew);
    assert!(replica.serves(&early) && replica.report().0);
    assert_eq!(replica.server.remaining(now + skew), None);
}

#[test]
fn the_last_good_leaf_stays_and_the_reason_is_logged_once() {
    let now = epoch();
    let good = material(now);
    let live = present(entry_with(good.authorities.clone()));
    let mut replica = Replica::start();
    replica.look(&sighted(good.clone()), &live, now);
    let garbage = Material {
        key: b"garbage".to_vec().into(),
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

    replica.look(&Observed::Absent, &live, now);
    assert!(replica.serves(&good));
    let (ready, report) = replica.report();
    assert!(
        ready && report.contains("certificate is missing; the last"),
        "{report}"
    );

    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = CertificateMetrics::register(&mut registry);
    let expiry = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    metrics.expiration.set(expiry.as_secs().try_into().unwrap());
    replica.server.metrics = metrics;
    for _ in 0..2 {
        replica.look(&sighted(garbage.clone()), &live, now);
    }
    let samples = Samples::of(&registry);
    let deferrals = "certificate_activation_deferrals_total{reason=\"unusable\"}";
    assert_eq!(samples.value(deferrals), Some(1.0));
    let shown = samples.value("certificate_expiration_timestamp_seconds");
    assert_eq!(shown, Some(expiry.as_secs_f64()));
}

#[test]
fn an_expired_leaf_is_still_served_but_not_ready() {
    let start = epoch();
    let only = material(start);
    let live = present(entry_with(only.authorities.clone()));
    let mut replica = Replica::start();
    replica.look(&sighted(only.clone()), &live, start);
    replica.look(&sighted(only.clone()), &live, after(start, 91));
    assert!(replica.serves(&only));
    let (ready, report) = replica.report();
    assert!(!ready && report.contains("expired at"), "{report}");
}

#[test]
fn a_certificate_is_usable_when_callers_trust_it() {
    let now = epoch();
    let old = material(now);
    let new = successor(now, &Bundle::read(&old.authorities));
    let name = settings().server_name().to_owned();
    let usable = |material: &Material, entry: &Observed<LiveEntry>, now| {
        usable(&material.pair().unwrap(), entry, &name, now)
    };
    let before = present(entry_with(old.authorities.clone()));
    assert_eq!(usable(&old, &before, now), Ok(()));
    assert_eq!(usable(&new, &before, now), Err(DeferReason::Untrusted));
    let during = present(entry_with(new.authorities.clone()));
    assert_eq!(
        usable(&old, &during, now),
        Ok(()),
        "no gap for replicas that still serve it"
    );
    assert_eq!(usable(&new, &during, now), Ok(()));

    for invalid in ["", "garbage"] {
        let entry = present(entry_with(invalid));
        assert_eq!(usable(&old, &entry, now), Err(DeferReason::Untrusted));
    }
    assert_eq!(usable(&old, &Observed::Absent, now), Ok(()));
    assert_eq!(
        usable(&old, &Observed::Unknown, now),
        Err(DeferReason::EntryNotReadYet)
    );
    let other = pair_for(now, &Bundle::default(), &["other.svc".to_owned()]);
    let live = present(entry_with(other.authorities.clone()));
    assert_eq!(usable(&other, &live, now), Err(DeferReason::Untrusted));
    for entry in [&during, &Observed::Absent] {
        assert_eq!(
            usable(&old, entry, after(now, 91)),
            Err(DeferReason::Outdated)
        );
    }
}

#[test]
fn an_overwritten_bundle_is_reported_and_the_certificate_stays() {
    let now = epoch();
    let only = material(now);
    let mut replica = Replica::start();
    replica.look(
        &sighted(only.clone()),
        &present(entry_with(only.authorities.clone())),
        now,
    );
    replica.look(&sighted(only.clone()), &present(entry_with("other")), now);
    assert!(replica.serves(&only));
    let (ready, report) = replica.report();
    assert!(
        ready && report.contains("does not verify the certificate; the last"),
        "{report}"
    );
    replica.look(&sighted(only.clone()), &Observed::Absent, now);
    assert_eq!(replica.report(), (true, "certificate: ready\n".to_owned()));
}
