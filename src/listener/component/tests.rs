//! The listener as its peers see it: real sockets, bytes written by hand.

mod contract;
mod drain;
mod framing;
mod gateway;
mod pressure;
mod watchers;

use super::*;

#[test]
fn a_name_that_cannot_stand_in_a_path_is_refused() {
    let options = Options::new(Authentication::None);
    let result = register_listener_component(([127, 0, 0, 1], 0).into(), "a/b", options);
    assert!(matches!(result, Err(Error::ComponentName(_))));
}

/// The public listener logged it and went on waiting.
#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let make = |address| {
        let options = Options::new(Authentication::None);
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
