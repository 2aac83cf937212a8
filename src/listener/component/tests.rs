//! Tests of the listener over real sockets, with manually written requests.

mod clocks;
mod contract;
mod drain;
mod floods;
mod framing;
mod gateway;
mod pressure;
mod readme;
mod watchers;

use super::*;
use testkit::metrics::Samples;

use crate::fixture::disabled;

#[test]
fn a_name_that_cannot_stand_in_a_path_is_refused() {
    let options = Options::new(disabled());
    let result = register_listener_component(([127, 0, 0, 1], 0).into(), "a/b", options);
    assert!(matches!(result, Err(Error::ComponentName(_))));
}

/// The public listener logs the error and continues to wait.
#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let make = |address| {
        let options = Options::new(disabled());
        register_listener_component(address, "kyma", options).unwrap()
    };
    let (holder, _events) = make(([127, 0, 0, 1], 0).into());
    let holder = holder.bind().await.unwrap();
    let (second, _events) = make(holder.local_addr());
    let refused = second.run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("failed to listen on {}", holder.local_addr())
    );
}

#[test]
fn metrics_of_two_listeners_in_one_registry_differ_in_their_manager() {
    let mut registry = Registry::default();
    for manager in ["one", "two"] {
        let options = Options::new(disabled());
        let address = ([127, 0, 0, 1], 0).into();
        let (listener, _events) = register_listener_component(address, manager, options).unwrap();
        listener.register_metrics(&mut registry);
    }
    let samples = Samples::of(&registry);
    for name in [
        "requests_total",
        "known_runtimes",
        "server_connections_accepted_total",
    ] {
        for manager in ["one", "two"] {
            let series =
                format!(r#"watcher_listener_{name}{{server_name="listener",manager="{manager}"}}"#);
            assert_eq!(samples.exact(&series), Some(0.0), "{series}");
        }
    }
}
