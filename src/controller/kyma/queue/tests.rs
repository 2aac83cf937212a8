use std::collections::BTreeMap;
use std::convert::Infallible;

use kube::Resource as _;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;

use tokio::time::{sleep, timeout};

use super::*;

fn store(names: &[&str]) -> (Store<KymaView>, Writer<KymaView>) {
    let (store, mut writer) = kube::runtime::reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for name in names {
        writer.apply_watcher_event(&Event::InitApply(KymaView::gone(name, "kcp")));
    }
    writer.apply_watcher_event(&Event::InitDone);
    (store, writer)
}

/// Returns the items that a stream returns without waiting, at most this number.
fn ready<T>(kymas: &mut (impl Stream<Item = T> + Unpin), most: usize) -> Vec<T> {
    let mut items = Vec::new();
    while items.len() < most
        && let Some(Some(item)) = kymas.next().now_or_never()
    {
        items.push(item);
    }
    items
}

/// Returns the names that have left the queue, each with `!` if the Kyma itself may have changed.
fn left(
    kymas: &mut (impl Stream<Item = (ObjectRef<KymaView>, Trigger)> + Unpin),
    most: usize,
) -> Vec<String> {
    let items = ready(kymas, most).into_iter();
    let names = items.map(|(kyma, trigger)| {
        let mark = if trigger == Trigger::Kyma { "!" } else { "" };
        format!("{}{mark}", kyma.name)
    });
    names.collect()
}

#[tokio::test]
async fn a_change_during_a_pass_continues_with_the_kymas_that_waited_longest() {
    let (store, mut writer) = store(&["c", "a", "b"]);
    let (value, changes) = watch::channel(());
    let mut all = pending((store, "kcp".to_owned()), changes, stream::empty()).boxed();
    assert_eq!(left(&mut all, 9), [""; 0]);
    value.send_replace(());
    assert_eq!(left(&mut all, 1), ["a"]);
    writer.apply_watcher_event(&Event::Apply(KymaView::gone("d", "kcp")));
    value.send_replace(());
    assert_eq!(left(&mut all, 9), ["b", "c", "a", "d"]);
    value.send_replace(());
    drop(value);
    assert_eq!(left(&mut all, 4), ["a", "b", "c", "d"]);
    assert_eq!(all.next().await, None);
}

/// At the start, Kymas, their Certificates and the state of the gateway are listed in any order.
#[tokio::test]
async fn a_kyma_that_several_sources_return_leaves_the_queue_once() {
    let (store, _writer) = store(&["a", "b", "c"]);
    let (value, changes) = watch::channel(());
    let (sender, kymas) = futures::channel::mpsc::unbounded();
    let send = |name: &str| sender.unbounded_send(ObjectRef::new(name)).unwrap();
    let mut all = pending((store, "kcp".to_owned()), changes, kymas).boxed();
    value.send_replace(());
    ["c", "b", "a", "c", "b", "a"].into_iter().for_each(send);
    assert_eq!(left(&mut all, 9), ["a!", "c!", "b!"]);
    send("b");
    assert_eq!(left(&mut all, 9), ["b!"]);
    value.send_replace(());
    assert_eq!(left(&mut all, 1), ["a"]);
    send("a");
    // A changed Kyma does not wait for the pass over all.
    assert_eq!(left(&mut all, 9), ["a!", "b", "c"]);
    drop((value, sender));
    assert_eq!(all.next().await, None);
}

#[tokio::test]
async fn another_kyma_leaves_the_queue_when_one_has_a_permit() {
    let names: Vec<String> = (0..2 * WAITING).map(|it| format!("{it:04}")).collect();
    let starts = ReconcileStarts::new(1);
    let kymas = names.iter().chain(&names);
    let kymas = kymas.map(|it| (ObjectRef::new(it), Trigger::All));
    let mut queue = starts.clone().limit(stream::iter(kymas)).boxed();
    let first = ready(&mut queue, usize::MAX);
    assert!(first.iter().map(|it| &it.name).eq(&names[..WAITING]));
    let mut next = Box::pin(queue.next());
    assert!(next.as_mut().now_or_never().is_none());
    let (store, mut writer) = store(&["0007", "another"]);
    let view = |name| KymaView::gone(name, "kcp");
    let (another, seventh) = (view("another"), view("0007"));
    let permit = starts.start(&another, &store).await;
    assert!(next.as_mut().now_or_never().is_none());
    let mut waiting = Box::pin(starts.start(&seventh, &store));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(next.as_mut().now_or_never().is_none());
    drop(permit);
    let mut changed = seventh.clone();
    changed.meta_mut().uid = Some("changed".to_owned());
    writer.apply_watcher_event(&Event::Apply(changed));
    let (permit, kyma, _) = waiting.await.unwrap();
    assert_eq!(kyma.uid().as_deref(), Some("changed"));
    writer.apply_watcher_event(&Event::Delete(another.clone()));
    drop(permit);
    assert!(starts.start(&another, &store).await.is_none());
    assert_eq!(next.await.unwrap().name, names[WAITING]);
}

#[tokio::test]
async fn a_kyma_that_waits_already_takes_no_second_place() {
    let kymas = stream::iter((0..4 * WAITING).map(|_| (ObjectRef::new("same"), Trigger::All)));
    let mut queue = ReconcileStarts::new(1).limit(kymas).boxed();
    assert_eq!(ready(&mut queue, usize::MAX).len(), 4 * WAITING);
}

#[tokio::test]
async fn a_kyma_that_may_have_changed_is_never_started_for_all_kymas_alone() {
    use Trigger::{All, Kyma};
    let (store, _writer) = store(&["a"]);
    let starts = ReconcileStarts::new(1);
    let started = async |triggers: &[Trigger]| {
        let items = triggers.iter().map(|it| (ObjectRef::new("a"), *it));
        let mut queue = starts.clone().limit(stream::iter(items)).boxed();
        assert_eq!(ready(&mut queue, usize::MAX).len(), triggers.len());
        let a = KymaView::gone("a", "kcp");
        starts.start(&a, &store).await.unwrap().2
    };
    assert_eq!(started(&[All, All]).await, All);
    assert_eq!(started(&[All, Kyma, All]).await, Kyma);
    // A retry.
    assert_eq!(started(&[]).await, Kyma);
}

/// The scheduler alone would start them in any order, so that some of the changed Kymas would never start.
#[tokio::test(start_paused = true)]
async fn retries_of_unreachable_runtimes_delay_a_changed_kyma_by_one_pass() {
    type Context = (
        ReconcileStarts,
        Arc<Mutex<HashSet<String>>>,
        Store<KymaView>,
    );
    const CONCURRENCY: usize = 4;
    let names = |kind: &str, count| -> Vec<String> {
        (0..count).map(|it| format!("{kind}-{it:03}")).collect()
    };
    let (unreachable, changed) = (names("unreachable", 200), names("changed", 20));
    let all: Vec<&str> = unreachable
        .iter()
        .chain(&changed)
        .map(String::as_str)
        .collect();
    let (store, _writer) = store(&all);
    let added = changed.clone();
    let reference = |it: String| (ObjectRef::new(&it).within("kcp"), Trigger::Kyma);
    let later = stream::once(sleep(Duration::from_mins(1)))
        .flat_map(move |()| stream::iter(added.clone()).map(reference));
    let kymas = stream::iter(unreachable.clone())
        .map(reference)
        .chain(later);
    let starts = ReconcileStarts::new(CONCURRENCY);
    let queue = starts.clone().limit(kymas.chain(stream::pending()).boxed());
    let started = Arc::new(Mutex::new(HashSet::new()));
    let context = Arc::new((starts, Arc::clone(&started), store.clone()));
    let reconciles = applier(
        |kyma: Arc<KymaView>, context: Arc<Context>| {
            Box::pin(async move {
                let _started = context.0.start(&kyma, &context.2).await.unwrap();
                context.1.lock().unwrap().insert(kyma.name_any());
                sleep(Duration::from_secs(5)).await;
                Ok::<_, Infallible>(Action::requeue(Duration::from_secs(1)))
            })
        },
        |_, _, _| Action::await_change(),
        context,
        store,
        queue.map(Ok::<_, Infallible>),
        Config::default(),
    );
    let pass = Duration::from_secs(5) * u32::try_from(all.len() / CONCURRENCY).unwrap();
    let limit = Duration::from_mins(1) + pass + Duration::from_secs(10);
    let ended = timeout(limit, reconciles.for_each(|_| std::future::ready(()))).await;
    assert!(ended.is_err(), "the reconciles ended");
    let started = started.lock().unwrap();
    let changed = started.iter().filter(|it| it.starts_with("changed"));
    assert_eq!(changed.count(), 20);
}

#[tokio::test(start_paused = true)]
async fn each_kyma_is_returned_once_in_each_interval() {
    let names: Vec<String> = (0..200).map(|it| format!("{it:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let (store, _writer) = store(&all);
    let start = Instant::now();
    let interval = Duration::from_mins(10);
    let mut kymas = resynced(store, interval, |it| it != "007").boxed();
    let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for _ in 0..3 * (names.len() - 1) {
        let kyma = kymas.next().await.unwrap();
        times.entry(kyma.name).or_default().push(start.elapsed());
    }
    assert_eq!(times.len(), names.len() - 1);
    assert!(!times.contains_key("007"));
    assert!(times.values().all(|it| it.len() == 3));
    let gaps = times
        .values()
        .flat_map(|it| it.windows(2).map(|it| it[1].abs_diff(it[0])));
    let expected = interval.as_millis();
    assert!(
        gaps.clone()
            .all(|it| it.as_millis().abs_diff(expected) < 100)
    );
    let first: Vec<_> = times.values().map(|it| it[0]).collect();
    let early = first.iter().filter(|it| **it <= interval / 2).count();
    assert!(
        (60..140).contains(&early),
        "{early} of 200 in the first half"
    );
}
