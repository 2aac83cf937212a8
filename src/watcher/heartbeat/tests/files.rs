//! The files of receivers and of webhook entries, as the kubelet mounts them.

use std::path::Path;

use testkit::until::until;

use super::*;

/// Replaces a file atomically, as the kubelet does, because the heartbeats may read it at any time.
fn replace(file: &Path, content: &str) {
    let next = file.with_extension("next");
    std::fs::write(&next, content).unwrap();
    std::fs::rename(&next, file).unwrap();
}

/// The file has the format of a key of a mounted Secret. An invalid name in the file, and a temporarily missing file, have
/// no other effect.
#[tokio::test]
async fn managers_of_a_file_hear_before_there_is_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("managers");
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.receivers_file = Some(file.clone());
    replace(&file, "a\nno name\n");
    let delivered = CancellationToken::new();
    let beating = tokio::spawn(fixture.heartbeats.run(delivered.clone()));
    let received = fixture.kcp.requests(2).await;
    assert_eq!(of(&received, "a").len(), received.len());
    std::fs::remove_file(&file).unwrap();
    let more = received.len() + 2;
    let received = fixture.kcp.requests(more).await;
    assert_eq!(of(&received, "a").len(), received.len());
    replace(&file, "a\nb\n");
    let mut count = received.len();
    while of(&fixture.kcp.requests(count).await, "b").is_empty() {
        count += 1;
        assert!(count < 1000, "b hears nothing");
    }
    // The last Watcher of a manager is deleted.
    replace(&file, "b\n");
    while !of(&fixture.kcp.requests(count).await, "a")
        .iter()
        .any(|it| it.ending)
    {
        count += 1;
        assert!(count < 1000, "a gets no last heartbeat");
    }
    delivered.cancel();
    beating.await.unwrap();
    let received = fixture.kcp.requests(count).await;
    for name in ["a", "b"] {
        let heartbeats = of(&received, name);
        let endings = heartbeats.iter().filter(|it| it.ending).count();
        assert!(endings == 1 && heartbeats.last().unwrap().ending, "{name}");
    }
}

/// Otherwise its listener would report a missing watcher for ever.
#[tokio::test]
async fn the_last_heartbeat_of_a_removed_manager_is_repeated_until_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("managers");
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.receivers_file = Some(file.clone());
    replace(&file, "a\n");
    fixture.heartbeats.round(false).await;
    replace(&file, "");
    fixture
        .kcp
        .next([503, 429, 200].map(|it| Reply::Status(it, "")));
    for _ in 0..5 {
        fixture.heartbeats.round(false).await;
    }
    let received = fixture.kcp.received();
    let endings: Vec<_> = of(&received, "a").iter().map(|it| it.ending).collect();
    assert_eq!(endings, [false, true, true, true]);
}

/// A listener that started together with its Watcher knows nothing of changes before the first review.
#[tokio::test]
async fn a_manager_that_is_added_to_the_file_is_asked_for_a_resync() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("managers");
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.receivers_file = Some(file.clone());
    let now = std::time::Instant::now();
    for (listed, expected) in [("a\n", false), ("a\nb\n", true), ("a\nb\n", true)] {
        replace(&file, listed);
        fixture.heartbeats.read_receivers().await;
        let report = |name| fixture.outbox.manager_report(&manager(name), now);
        assert_eq!(report("a").resync, None);
        assert_eq!(report("b").resync.is_some(), expected);
    }
    let mark = fixture.outbox.manager_report(&manager("b"), now).resync;
    fixture
        .outbox
        .resync_reported(&manager("b"), mark.unwrap(), now);
    fixture.heartbeats.read_receivers().await;
    let report = fixture.outbox.manager_report(&manager("b"), now);
    assert_eq!(report.resync, None, "once");
}

/// Nothing was delivered to the manager since the start of the watcher.
#[tokio::test]
async fn a_review_that_is_not_read_counts_for_each_manager_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("managers");
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.receivers_file = Some(file.clone());
    replace(&file, "a\n");
    fixture.heartbeats.read_receivers().await;
    let now = std::time::Instant::now();
    for (name, expected) in [("a", true), ("invented", false)] {
        fixture.outbox.mark_unread(&manager(name), now);
        let report = fixture.outbox.manager_report(&manager(name), now);
        assert_eq!(report.resync.is_some(), expected, "{name}");
    }
}

/// Events of managers that have a Watcher are stored from the first review on, as far as the outbox has capacity.
#[tokio::test]
async fn the_outbox_knows_the_managers_of_the_file_before_the_first_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("managers");
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.receivers_file = Some(file.clone());
    fixture.heartbeats.options.interval = Duration::from_hours(1);
    replace(&file, "a\n");
    let outbox = fixture.outbox.clone();
    let beating = tokio::spawn(fixture.heartbeats.run(CancellationToken::new()));
    let is_known = async || {
        let now = std::time::Instant::now();
        // It has an effect only for a manager that has a Watcher.
        outbox.mark_unread(&manager("a"), now);
        let report = outbox.manager_report(&manager("a"), now);
        report.resync.map(drop).ok_or("not known")
    };
    until("a is known", Duration::from_mins(1), is_known)
        .await
        .unwrap();
    assert!(fixture.kcp.received().is_empty());
    beating.abort();
}

/// Its Watcher was deleted, so no heartbeat to it is accepted. The request stays, in case that the Watcher comes back.
#[tokio::test]
async fn a_loss_of_a_manager_that_the_file_does_not_list_is_not_reported_as_pending() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("managers");
    let mut fixture = Fixture::new(&[]).await;
    fixture.delivers("a");
    let now = std::time::Instant::now();
    fixture.outbox.mark_all_lost(now);
    fixture.heartbeats.options.receivers_file = Some(file.clone());
    for (listed, expected) in [("a\nb\n", true), ("b\n", false)] {
        replace(&file, listed);
        fixture.heartbeats.read_receivers().await;
        assert_eq!(fixture.outbox.report(now).resync_needed, expected);
        let report = fixture.outbox.manager_report(&manager("a"), now);
        assert!(report.resync.is_some());
    }
}

/// As the kubelet mounts the key that the controller writes.
#[tokio::test]
async fn the_hash_of_the_webhook_entries_goes_to_each_manager() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("entries");
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.entries_file = Some(file.clone());
    let mut sent = Vec::new();
    for content in [Some("a 1\nb 2\nno line\nc a/b\n"), None, Some("a 3\n")] {
        match content {
            Some(content) => replace(&file, content),
            None => std::fs::remove_file(&file).unwrap(),
        }
        fixture.heartbeats.read_entries().await;
        let report = ManagerReport::default();
        sent.push(["a", "b", "c"].map(|name| {
            let heartbeat = fixture.heartbeats.heartbeat(&manager(name), &report, false);
            heartbeat.webhook_entry_hash.unwrap_or_default()
        }));
    }
    assert_eq!(sent, [["1", "2", ""], ["1", "2", ""], ["3", "", ""]]);
}

/// A listener that starts later need not know the earlier hash.
#[tokio::test]
async fn the_age_of_a_hash_starts_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("entries");
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.entries_file = Some(file.clone());
    tokio::time::pause();
    let mut ages = Vec::new();
    for content in ["a 1\nb 1\n", "a 1\nb 2\n", "a 1\nb 2\nc 1\n"] {
        replace(&file, content);
        fixture.heartbeats.read_entries().await;
        tokio::time::advance(Duration::from_secs(40)).await;
        ages.push(["a", "b", "c"].map(|name| {
            let report = ManagerReport::default();
            let heartbeat = fixture.heartbeats.heartbeat(&manager(name), &report, false);
            heartbeat.webhook_entry_age_seconds
        }));
    }
    let expected = [
        [Some(40), Some(40), None],
        [Some(80), Some(40), None],
        [Some(120), Some(80), Some(40)],
    ];
    assert_eq!(ages, expected);
}
