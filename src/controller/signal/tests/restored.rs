//! Tests after KCP was restored from a backup: state, sources and annotations are older, together or alone.

use serde_json::{Value, json};

use super::env::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Returns a controller that was stopped after it signaled a change, and the state from before the change.
async fn signalled_after_a_backup() -> (Env, Value) {
    let mut env = Env::initialized(&NAMES).await;
    let backup = env.kcp.object("configmaps", STATE).unwrap();
    env.change("two.example");
    env.until_signalled(&NAMES).await;
    acknowledge(&env);
    env.quiet().await;
    env.stop().await;
    env.forget();
    (env, backup)
}

fn acknowledge(env: &Env) {
    for name in NAMES {
        env.take(name, "annotations");
    }
}

/// Starts the controller, and asserts that no Runtime waits for a signal after it signaled these Runtimes.
async fn converge(env: &mut Env, signalled: &[&str]) {
    env.start().await;
    if !signalled.is_empty() {
        env.until_signalled(signalled).await;
        acknowledge(env);
    }
    env.quiet().await;
    assert_eq!(env.signalled(), signalled);
    assert_eq!(env.state()["baseline"], env.revision().as_str());
}

#[tokio::test(start_paused = true)]
async fn an_older_state_alone_signals_no_runtime_again() {
    let (mut env, backup) = signalled_after_a_backup().await;
    let revision = env.revision();
    env.kcp.put(backup);
    assert_ne!(env.revision(), revision);
    converge(&mut env, &[]).await;
    assert_eq!(env.revision(), revision);
}

/// Everything is older. The current sources are applied later, and signaled once.
#[tokio::test(start_paused = true)]
async fn a_complete_backup_signals_nothing_until_the_current_sources_are_applied() {
    let (mut env, backup) = signalled_after_a_backup().await;
    let revision = env.revision();
    env.kcp.put(backup);
    env.change("one.example");
    for name in NAMES {
        let annotations = json!({"metadata": {"annotations": {REVISION: null}}});
        env.kcp.merge("runtimes", name, &annotations);
    }
    converge(&mut env, &[]).await;
    env.change("two.example");
    env.until_signalled(&NAMES).await;
    acknowledge(&env);
    env.quiet().await;
    assert_eq!(env.signalled(), NAMES);
    assert_eq!(env.revision(), revision);
}

/// The Runtimes were not restored: KIM has copied other sources to them than those of the backup.
#[tokio::test(start_paused = true)]
async fn older_sources_signal_each_runtime_with_another_revision_once() {
    let (mut env, backup) = signalled_after_a_backup().await;
    env.kcp.put(backup);
    env.change("one.example");
    converge(&mut env, &NAMES).await;
}
