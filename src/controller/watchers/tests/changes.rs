//! Tests of the ways by which a VirtualService follows its Watcher and the Gateways.

use super::*;

fn hosts(env: &Env) -> Value {
    env.route("one").unwrap()["spec"]["hosts"].clone()
}

#[tokio::test]
async fn an_edited_selector_and_edited_hosts_change_the_route() {
    let env = Env::started();
    let mut second = gateway("second", "two.example");
    second["metadata"]["labels"]["gateway"] = json!("other");
    env.kcp.put(second);
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    assert_eq!(hosts(&env), json!(["kcp.example"]));

    let selector = json!({"matchLabels": {"gateway": "other"}});
    let selector = json!({"spec": {"gateway": {"selector": selector}}});
    env.kcp.merge("watchers", "one", &selector);
    until(|| hosts(&env) == json!(["two.example"])).await;
    let gateways = &env.route("one").unwrap()["spec"]["gateways"];
    assert_eq!(*gateways, json!(["kcp-system/second"]));

    let servers = json!([{"hosts": ["three.example", "./four.example"], "port": {"number": 443}}]);
    let servers = json!({"spec": {"servers": servers}});
    env.kcp.merge("gateways", "second", &servers);
    until(|| hosts(&env) == json!(["three.example", "four.example"])).await;
}

/// The watch of VirtualServices is rejected, so no event reports the change.
#[tokio::test(start_paused = true)]
async fn a_route_that_differs_is_repaired_at_the_resync_without_an_event() {
    let mut env = Env::new();
    let watch = env.kcp.fault("watch virtualservices").status(403);
    env.kcp.put(gateway("gateway", "kcp.example"));
    env.start();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    // After this time, the events of the own writes are handled.
    let ready = testkit::until::holds("it is ready", RESYNC / 10, async || {
        env.status("one").is_some()
    });
    ready.await.unwrap();

    let change = json!({"spec": {"hosts": ["other.example"]}});
    env.kcp.merge("virtualservices", "one", &change);
    let differs = async || hosts(&env) == json!(["other.example"]);
    let unnoticed = testkit::until::holds("no event reports it", RESYNC / 2, differs);
    unnoticed.await.unwrap();
    let repaired = async || hosts(&env) == json!(["kcp.example"]);
    let resync = testkit::until::until("the resync", RESYNC, repaired);
    resync.await.unwrap();
    assert!(watch.hits() > 0);
}
