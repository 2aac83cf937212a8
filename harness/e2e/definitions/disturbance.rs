//! Disturbances of the webhook while Pods are created: rollouts, evicted and killed replicas, new certificates, an API server
//! that replicas cannot reach, and changes of the configuration.
//!
//! Two clients run from before the first disturbance until after the last one. One client creates Pods, which the API server
//! sends to the webhook. The other client sends requests to every replica. It continues after a replica was deleted, like an
//! API server whose list of endpoints is ten seconds old.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::component::{FILES, certificate_files, deployment, note_failed_open};
use super::pod::restarts;
use super::prelude::*;
use super::webhook::{NOT_ANSWERED, NOT_MUTATED};
use super::{Stream, tls};
use crate::admission::webhook::{
    DEPLOYMENT, NAMESPACE, Replica, Webhook, opted_in, usual_configuration,
};
use crate::rollout::{Workload, filter, kill, restarted};
use testkit::client::Answer;

#[when(
    regex = r#"^(component webhook is rolled out|each replica of component webhook is evicted|a replica of component webhook is killed|the certificate of component webhook is issued anew|the certificate files of component webhook are replaced|the CA of the certificate files of component webhook is replaced|component webhook cannot reach the API server|the configuration is changed) (\d+) times? while at least (\d+) Pods are created in Namespace "([^"]+)"$"#
)]
async fn disturbed(
    scenario: &mut Scenario,
    what: String,
    times: u32,
    least: usize,
    namespace: String,
) -> Result {
    note_failed_open(scenario).await?;
    let webhook = webhook(scenario)?;
    let (client, namespace) = (webhook.client.clone(), scenario.resolve(&namespace));
    let creating = Stream::spawn(|over| create_pods(client, namespace, least, over));
    let asking = Stream::spawn(|over| ask_replicas(webhook, over));
    let kills = disturb_times(scenario, &what, times).await;
    // Both clients end before an error is returned, so that they do not outlive the scenario.
    let (pods, asked) = (creating.end().await?, asking.end().await?);
    let (pods, asked, kills) = (pods?, asked?, kills?);
    let missed_without = missed_without(&pods, &kills);
    let wrong: Vec<_> = pods.iter().filter_map(|pod| pod.error.as_ref()).collect();
    let (created, missed, reviews) = (pods.len(), wrong.len(), asked.reviews);
    tracing::info!(what, times, created, missed, reviews, "Pods were created");
    ensure!(reviews > 0, "no replica was asked");
    let observed = &mut scenario.observed;
    observed.note(NOT_MUTATED, json!(wrong));
    observed.note(MISSED_WITHOUT_A_KILL, json!(missed_without));
    observed.note(NOT_ANSWERED, json!(asked.wrong));
    Ok(())
}

/// Runs the disturbance several times. For each kill it returns the period in which the API server may have called the killed
/// replica.
async fn disturb_times(
    scenario: &mut Scenario,
    what: &str,
    times: u32,
) -> Result<Vec<Range<Instant>>> {
    let mut kills = Vec::new();
    for _ in 0..times {
        kills.extend(disturb(scenario, what).await?);
    }
    Ok(kills)
}

/// Runs the disturbance once, and waits until all replicas are as before.
async fn disturb(scenario: &mut Scenario, what: &str) -> Result<Option<Range<Instant>>> {
    match what {
        "component webhook is rolled out" => change(scenario, &deployment(), restarted()).await,
        "each replica of component webhook is evicted" => evict(scenario).await,
        "a replica of component webhook is killed" => return kill_one(scenario).await.map(Some),
        "the certificate of component webhook is issued anew" => issue(scenario).await,
        "the certificate files of component webhook are replaced" => replace(scenario, false).await,
        "the CA of the certificate files of component webhook is replaced" => {
            replace(scenario, true).await
        }
        "component webhook cannot reach the API server" => cut_off(scenario).await,
        _ => reconfigure(scenario).await,
    }?;
    Ok(None)
}

/// Evicts all replicas as `kubectl drain` does, each as soon as its PodDisruptionBudget allows it.
async fn evict(scenario: &Scenario) -> Result {
    let webhook = webhook(scenario)?;
    for replica in webhook.replicas().await? {
        let metadata = json!({ "name": replica.pod, "namespace": NAMESPACE });
        let pod = &replica.pod;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata });
        eventually("the budget allows the eviction", async || {
            let answer = webhook.client.ask(Method::POST, &path, Some(&body)).await?;
            let is_late = answer.status == StatusCode::TOO_MANY_REQUESTS;
            ensure!(!is_late, "{}", answer.message());
            answer.good().map(drop)
        })
        .await?;
    }
    settled(scenario).await
}

/// Kills the process of one replica with SIGKILL. The kubelet starts another process in the same Pod, with a longer delay after
/// each restart. Until then, or until the endpoint is removed, connections from the API server to the replica are refused.
async fn kill_one(scenario: &Scenario) -> Result<Range<Instant>> {
    let environment = scenario.environment_of::<Admission>()?;
    let webhook = webhook(scenario)?;
    let before = restarts(&webhook.pods().await?);
    let least = before.iter().min_by_key(|(_, restarts)| **restarts);
    let (pod, started) = least.context("the webhook has no replica")?;
    let pattern = format!("(^| )POD_NAME={pod} ");
    let began = Instant::now();
    let killed = kill(&environment.cluster, "environ", &pattern).await?;
    ensure!(killed == 1, "{killed} processes of {pod}");
    eventually("another process runs", async || {
        let now = restarts(&webhook.pods().await?);
        check(now.get(pod) > Some(started), format!("{now:?}"))
    })
    .await?;
    settled(scenario).await?;
    Ok(began..Instant::now())
}

async fn issue(scenario: &Scenario) -> Result {
    let name = api::names::WEBHOOK_CERTIFICATE;
    let object = ObjectRef::new("Secret", Some(NAMESPACE), name);
    let before = existing(scenario, &object).await?;
    let (client, path) = at(scenario, &object).await?;
    client.delete(&path).await?;
    tls::serves_new(scenario, &object, &before).await
}

/// Replaces the certificate with one of the same CA, as cert-manager renews it, or of another CA.
async fn replace(scenario: &mut Scenario, by_another_ca: bool) -> Result {
    let object = ObjectRef::new("Secret", Some(NAMESPACE), FILES);
    let before = existing(scenario, &object).await?;
    let (client, path) = at(scenario, &object).await?;
    let files = certificate_files(scenario, by_another_ca)?;
    client.patch(&path, &files).await?;
    let replicas = Workload::new(client, NAMESPACE, DEPLOYMENT);
    replicas.update_mounts().await?;
    tls::serves_new(scenario, &object, &before).await
}

/// Resets all connections of replicas to the API server and refuses new ones, until the watches of every replica have failed.
async fn cut_off(scenario: &mut Scenario) -> Result {
    let webhook = webhook(scenario)?;
    let environment = scenario.environment_of::<Admission>()?;
    let mut rules = Vec::new();
    for pod in webhook.pods().await? {
        let address = pod["status"]["podIP"].as_str().context("no address")?;
        let what = "-j REJECT --reject-with tcp-reset";
        rules.push(format!("INPUT -p tcp -s {address} --dport 6443 {what}"));
    }
    let (cluster, again) = (Arc::clone(&environment), rules.clone());
    scenario.undo("let the webhook reach the API server", async move {
        for rule in &again {
            filter(&cluster.cluster, "filter", rule, false).await?;
        }
        Ok(())
    });
    for refused in [true, false] {
        for rule in &rules {
            filter(&environment.cluster, "filter", rule, refused).await?;
        }
        let has_noticed = async |replica: &Replica| {
            let failing = replica.metrics().await?;
            let failing = failing.sum_of_known("rt_bootstrapper_watch_failing")?;
            let is_expected = (failing > 0.0) == refused;
            check(is_expected, format!("{failing} watches fail"))
        };
        let what = format!("API server refuses connections: {refused}");
        webhook.each(&what, has_noticed).await?;
    }
    settled(scenario).await
}

/// Writes an invalid document, and immediately another valid one.
async fn reconfigure(scenario: &mut Scenario) -> Result {
    let name = api::names::CONFIG_MAP;
    let object = ObjectRef::new("ConfigMap", Some(NAMESPACE), name);
    if scenario.earlier(&object).is_err() {
        restore_later(scenario, &object).await?;
    }
    let webhook = webhook(scenario)?;
    webhook.write_configuration("{").await?;
    webhook.configure(usual_configuration()?).await
}

async fn settled(scenario: &Scenario) -> Result {
    scenario.environment()?.settle(&deployment()).await
}

/// A Pod that the client created or tried to create.
struct Created {
    begun: Instant,
    answered: Instant,
    /// Error of the creation, or the reason why the Pod is not as expected.
    error: Option<String>,
}

impl Created {
    fn is_missed_during(&self, kill: &Range<Instant>) -> bool {
        self.error.is_some() && self.begun <= kill.end && self.answered >= kill.start
    }
}

/// Returns the errors of missed Pods that no killed replica explains: at other times, or more during a kill than can be sent to
/// the killed replica. These are the requests in flight, and those whose connection is refused: each of the connections that
/// the kill closes is opened anew, to a random one of the two replicas, until it is accepted.
fn missed_without(pods: &[Created], kills: &[Range<Instant>]) -> Vec<String> {
    let is_explained = |pod: &&Created| kills.iter().any(|kill| pod.is_missed_during(kill));
    let unexplained = pods.iter().filter(|pod| !is_explained(pod));
    let mut errors: Vec<String> = unexplained.filter_map(|pod| pod.error.clone()).collect();
    for kill in kills {
        let missed = pods.iter().filter(|pod| pod.is_missed_during(kill)).count();
        let limit = 3 * IN_FLIGHT;
        if missed > limit {
            errors.push(format!(
                "{missed} Pods are missed by one kill, expected {limit} at most"
            ));
        }
    }
    errors
}

/// Creates Pods at a constant rate, from before the disturbances until some seconds after them (`over`), and at least `least`
/// Pods.
///
/// The rate decreases while `IN_FLIGHT` requests are not answered. Without this limit, requests would accumulate in an API
/// server that is slower than the rate for some seconds. Then its calls of the webhook would exceed their time limit in the API
/// server itself.
async fn create_pods(
    client: Client,
    namespace: String,
    least: usize,
    over: Arc<AtomicBool>,
) -> Result<Vec<Created>> {
    #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut pods = JoinSet::new();
    let mut left = MARGIN_SECONDS * RATE;
    while left > 0 || pods.len() < least {
        ticks.tick().await;
        left = left.saturating_sub(u32::from(over.load(Ordering::Relaxed)));
        let mut pod = named(&format!("pod-{}", pods.len()));
        // The Pod is never scheduled, because the test covers only its admission.
        pod["spec"]["schedulingGates"] = json!([{ "name": "harness.test/never" }]);
        pod["metadata"]["namespace"] = json!(namespace);
        let client = client.clone();
        let permit = Arc::clone(&in_flight).acquire_owned().await?;
        pods.spawn(async move {
            let begun = Instant::now();
            let answer = client.write(Write::Create, &pod).await;
            drop(permit);
            let answered = Instant::now();
            Created {
                begun,
                answered,
                error: not_mutated(answer, answered - begun),
            }
        });
    }
    Ok(pods.join_all().await)
}

/// Returns why the Pod is not as expected. The duration of the request distinguishes a webhook that was not reached within its
/// time limit from one that answered without a patch.
fn not_mutated(answer: Result<Answer>, duration: Duration) -> Option<String> {
    match answer.and_then(Answer::good) {
        Err(error) => Some(format!("{error:#}")),
        Ok(answer) => {
            let metadata = answer.at("/metadata");
            let is_mutated = metadata["annotations"][api::names::MARKER] == "true";
            let of = (&metadata["name"], &metadata["annotations"]);
            (!is_mutated).then(|| format!("{} is not mutated after {duration:.1?}: {}", of.0, of.1))
        }
    }
}

/// Results of the client that sends requests to replicas.
#[derive(Default)]
struct Asked {
    reviews: usize,
    /// Names of replicas, and errors.
    wrong: Vec<String>,
}

/// Repeatedly sends a review to every replica, from its readiness until `STALE` after its deletion.
async fn ask_replicas(webhook: Webhook, over: Arc<AtomicBool>) -> Result<Asked> {
    #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
    let mut ticks = interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let pod = opted_in(api::Feature::FipsMode, "example.test/app:1");
    // Time at which each replica was last observed without a deletion.
    let mut alive: BTreeMap<String, Instant> = BTreeMap::new();
    let mut asked = Asked::default();
    while !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let now = Instant::now();
        for replica in webhook.pods().await? {
            let name = replica["metadata"]["name"].as_str().unwrap_or_default();
            let is_ready = replica["status"]["containerStatuses"][0]["ready"] == true;
            let is_deleted = !replica["metadata"]["deletionTimestamp"].is_null();
            if !is_deleted && (is_ready || alive.contains_key(name)) {
                alive.insert(name.to_owned(), now);
            }
        }
        alive.retain(|_, at| at.elapsed() < STALE);
        let answers = join_all(alive.iter().map(async |(name, at)| {
            let error = match webhook.replica(name).review("default", &pod).await {
                Ok(response) if !response["patch"].is_null() => return None,
                Ok(response) => response.to_string(),
                Err(error) => format!("{error:#}"),
            };
            // The deletion was after `at`, but the connection may have been opened at any time until now.
            let since = at.elapsed();
            (since < STALE).then(|| format!("{name}, not deleted {since:?} ago: {error}"))
        }))
        .await;
        asked.reviews += answers.len();
        asked.wrong.extend(answers.into_iter().flatten());
    }
    Ok(asked)
}

/// Key of a result of a scenario: errors of Pods that are not mutated, except those that a killed replica explains.
pub(super) const MISSED_WITHOUT_A_KILL: &str =
    "Pods that are not mutated though no replica was killed";
/// Number of created Pods per second.
const RATE: u32 = 100;
/// Largest number of concurrent creations of Pods.
const IN_FLIGHT: usize = 20;
/// Duration of the load after the last disturbance in seconds.
const MARGIN_SECONDS: u32 = 2;
/// Largest age of a client's list of endpoints.
const STALE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// A Pod is created every ten milliseconds; a replica is killed after one second and available after three seconds.
    #[rstest::rstest]
    #[case::none([], 0)]
    #[case::before([99], 1)]
    #[case::during([100, 120, 300], 0)]
    #[case::after([301], 1)]
    #[case::not_more_than_are_sent_to_the_replica(100..160, 0)]
    #[case::more_than_are_sent_to_the_replica(100..161, 1)]
    fn explains_missed_pods_by_a_kill(
        #[case] missed: impl IntoIterator<Item = u32>,
        #[case] errors: usize,
    ) {
        let start = Instant::now();
        let at = |pod: u32| start + Duration::from_millis(10) * pod;
        let created = |pod: u32| Created {
            begun: at(pod),
            answered: at(pod),
            error: Some("is not mutated".to_owned()),
        };
        let pods: Vec<Created> = missed.into_iter().map(created).collect();
        assert_eq!(missed_without(&pods, &[at(100)..at(300)]).len(), errors);
    }
}
