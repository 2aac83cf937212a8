use super::*;

fn seconds(seconds: u64) -> MonotonicTime {
    MonotonicTime::default().after(Duration::from_secs(seconds))
}

fn segment(text: &str) -> PathSegment {
    PathSegment::parse(text).unwrap()
}

#[test]
fn a_loss_during_the_report_of_the_previous_one_is_kept() {
    let mut managers = Managers::default();
    let a = managers
        .register(&segment("a"), MonotonicTime::default())
        .unwrap();
    assert!(managers.mark_lost(a, EARLIER));
    let told = managers.loss(&segment("a")).unwrap();
    assert!(!managers.mark_lost(a, EARLIER));
    assert!(!managers.resync_reported(&segment("a"), told));
    let told = managers.loss(&segment("a")).unwrap();
    assert!(managers.resync_reported(&segment("a"), told));
    assert!(!managers.resync_reported(&segment("a"), told));
    assert_eq!(
        (managers.loss(&segment("a")), managers.any_lost()),
        (None, false)
    );
}

#[test]
fn a_loss_of_an_unknown_manager_is_that_of_all() {
    let mut managers = Managers::default();
    managers.mark_all_lost(|_| false);
    assert!(managers.any_lost());
    let mark = managers.loss(&segment("other")).unwrap();
    assert!(managers.resync_reported(&segment("other"), mark));
    assert_eq!(managers.loss(&segment("other")), None);
    managers
        .register(&segment("new"), MonotonicTime::default())
        .unwrap();
    assert_ne!(managers.loss(&segment("new")), None);
    assert!(!managers.resync_reported(&segment("new"), mark));
}

/// The watcher asks for a second resync half a minute after it has a certificate again; a heartbeat may take that long.
#[test]
fn a_loss_of_all_managers_while_the_last_was_reported_stays() {
    let mut managers = Managers::default();
    managers.mark_all_lost(|_| false);
    let before = managers.loss(&segment("a")).unwrap();
    managers.mark_all_lost(|_| false);
    assert!(!managers.resync_reported(&segment("a"), before));
    let now = managers.loss(&segment("a")).unwrap();
    assert!(managers.resync_reported(&segment("a"), now));
    assert_eq!(managers.loss(&segment("a")), None);
}

/// An evicted manager is registered again, or all managers lose events, before the change may be stored.
#[test]
fn the_time_of_a_loss_survives_registration_and_later_losses() {
    let mut managers = Managers::default();
    let [a, b] = ["a", "b"].map(segment);
    managers.mark_all_lost(|_| false);
    assert_eq!(managers.stored_by(), Some(EARLIER));
    managers.mark_unregistered_lost(&a, seconds(5));
    managers.register(&a, seconds(1)).unwrap();
    assert_eq!(managers.loss(&a).unwrap().stored_by, seconds(5));
    managers.mark_unregistered_lost(&b, seconds(7));
    managers.mark_all_lost(|_| false);
    let stored_by = managers.loss(&b).unwrap().stored_by;
    assert_eq!(
        (stored_by, managers.stored_by()),
        (seconds(7), Some(seconds(7)))
    );
}

/// Any client can invent this many names. A receiver of heartbeats that has accepted no event is not registered.
#[test]
fn a_receiver_that_finds_no_capacity_is_asked_for_a_resync_once() {
    let mut managers = Managers::default();
    let mut name = (0..).map(|number| segment(&format!("m{number}")));
    for name in name.by_ref().take(CAPACITY) {
        managers.register(&name, seconds(0)).unwrap();
    }
    let late = name.next().unwrap();
    assert!(managers.register(&late, seconds(0)).is_none());
    assert!(managers.mark_unregistered_lost(&late, EARLIER));
    let (ops, other) = (segment("ops"), segment("other"));
    let mark = managers.loss(&ops).unwrap();
    assert!(managers.resync_reported(&ops, mark));
    assert_eq!(managers.loss(&ops), None);
    // Further losses of other managers do not concern this receiver. Its own losses do.
    assert!(!managers.mark_unregistered_lost(&late, EARLIER));
    assert_eq!(managers.loss(&ops), None);
    assert!(managers.loss(&other).is_some());
    assert!(managers.mark_unregistered_lost(&ops, EARLIER));
    let before = managers.loss(&ops).unwrap();
    assert_ne!(before, mark);
    // A heartbeat that was in flight during a further loss does not report it.
    assert!(!managers.mark_unregistered_lost(&ops, EARLIER));
    assert!(!managers.resync_reported(&ops, before));
    let mark = managers.loss(&ops).unwrap();
    // Registration and eviction of the receiver change nothing.
    assert!(managers.resync_reported(&ops, mark));
    let place = managers.evictable(seconds(60)).unwrap();
    managers.replace(place, &ops, seconds(60));
    assert_eq!(managers.loss(&ops), None);
    let place = managers.place(&ops).unwrap();
    managers.replace(place, &other, seconds(120));
    assert_eq!(managers.loss(&ops), None);
}

/// A receiver of heartbeats that is not configured gets no events.
#[test]
fn a_loss_of_all_managers_is_none_of_another_receiver() {
    let mut managers = Managers::new(&[segment("kyma")]);
    managers.mark_all_lost(|_| false);
    assert!(managers.loss(&segment("kyma")).is_some());
    assert_eq!(managers.loss(&segment("ops")), None);
}

#[test]
fn without_configured_managers_their_number_is_bounded() {
    let mut managers = Managers::default();
    let registered =
        (0..2_000).filter_map(|n| managers.register(&segment(&format!("m{n}")), seconds(0)));
    assert_eq!(registered.count(), CAPACITY);
    assert!(managers.register(&segment("m0"), seconds(0)).is_some());
}

#[test]
fn configured_managers_are_the_only_ones_and_never_evicted() {
    let names: Vec<_> = (0..100).map(|n| segment(&format!("c{}", n % 50))).collect();
    let mut managers = Managers::new(&names);
    assert_eq!(managers.receivers().count(), 50);
    assert_eq!(managers.register(&segment("other"), seconds(0)), None);
    assert_eq!(managers.evictable(seconds(1_000_000)), None);
}
