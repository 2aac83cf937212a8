//! Tests with thousands of Namespaces, most of which have an obstacle.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use testkit::apiserver::Recorded;
use testkit::logs::Logs;
use tokio::time::Instant;
use tracing::Level;

use super::environment::Environment;
use super::*;

const NAMESPACES: usize = 10_000;

/// Maximum number of attempts in ten minutes: the pause doubles from half a second to a minute, and then stays at a minute.
const MOST_ATTEMPTS: usize = 18;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Obstacle {
    None,
    /// The Namespace is being deleted, and the watch has observed it.
    Terminating,
    /// The Namespace is being deleted, and the watch has not observed it.
    TerminatingUnseen,
    /// Writes in the Namespace are forbidden.
    Forbidden,
}

fn name(number: usize) -> String {
    format!("team-{number:05}")
}

/// Half of the Namespaces are being deleted.
fn obstacle(number: usize) -> Obstacle {
    match number % 20 {
        1 => Obstacle::Forbidden,
        2 => Obstacle::TerminatingUnseen,
        even if even % 2 == 0 => Obstacle::Terminating,
        _ => Obstacle::None,
    }
}

fn fill(env: &Environment) {
    let mut known = HashMap::new();
    for number in 0..NAMESPACES {
        let (name, obstacle) = (name(number), obstacle(number));
        let mut metadata = json!({"name": name});
        if matches!(
            obstacle,
            Obstacle::Terminating | Obstacle::TerminatingUnseen
        ) {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        env.put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        let namespace = KnownNamespace {
            terminating: obstacle == Obstacle::Terminating,
            ..namespace(true)
        };
        known.insert(name, Arc::new(namespace));
    }
    env.snapshots.set_namespaces(known);
}

/// Returns the writes in each Namespace.
fn attempts(env: &Environment) -> HashMap<String, Vec<Recorded>> {
    let mut attempts = HashMap::<_, Vec<_>>::new();
    for request in env.server.requests_of("apply|delete secrets") {
        let namespace = request.asked.namespace.clone();
        attempts.entry(namespace).or_default().push(request);
    }
    attempts
}

#[tokio::test(start_paused = true)]
async fn namespaces_in_obstacle_hold_up_no_others_and_are_tried_ever_more_rarely() {
    let mut env = Environment::new();
    fill(&env);
    let of = |wanted| (0..NAMESPACES).filter(move |it| obstacle(*it) == wanted);
    let forbidden = of(Obstacle::Forbidden).map(|it| format!("{}/{NAME}", name(it)));
    let forbidden: Vec<String> = forbidden.collect();
    let pattern = format!("apply secrets {}", forbidden.join("|"));
    let forbidden = env.server.fault(&pattern).status(403);
    let (logs, begin) = (Logs::of(Level::WARN), Instant::now());
    env.start();
    env.quiet().await;

    let attempts = attempts(&env);
    let count = |number| attempts.get(&name(number)).map_or(0, Vec::len);
    for number in of(Obstacle::None) {
        let name = name(number);
        assert_eq!(
            (count(number), env.value(&name).as_deref()),
            (1, Some(ONE)),
            "{name}"
        );
        let after = attempts[&name][0].begin - begin;
        assert!(after < Duration::from_mins(1), "{name} after {after:?}");
    }
    assert_eq!(of(Obstacle::Terminating).map(count).sum::<usize>(), 0);
    for obstacle in [Obstacle::TerminatingUnseen, Obstacle::Forbidden] {
        let counts: Vec<usize> = of(obstacle).map(count).collect();
        let within = counts.iter().all(|it| (2..=MOST_ATTEMPTS).contains(it));
        assert!(within, "{obstacle:?}: {:?}", counts.iter().max());
    }
    let reads = env.server.count("list|watch|get *");
    assert!(reads <= 10, "{reads} reads");
    assert_eq!(logs.alarms(), 1, "{:?}", logs.lines().iter().take(5));

    forbidden.stop();
    env.quiet().await;
    let copies = of(Obstacle::None).chain(of(Obstacle::Forbidden)).count();
    assert!(env.metric(&format!("pull_secret_copies {copies}")));
}
