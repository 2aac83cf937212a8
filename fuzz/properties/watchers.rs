//! A list of Watchers results in a webhook configuration that API servers accept, for any content of single Watchers, and
//! in a route or an error for each Watcher.

use std::collections::BTreeMap;

use api::watcher::Watcher;
use policy::change::{Endpoint, configuration};
use policy::watchers::{Gateway, virtual_service, webhook_entries};
use serde_json::Value;

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let Ok(watchers) = serde_json::from_slice::<Vec<Watcher>>(data) else {
        return;
    };
    // Names are unique in a cluster.
    let key = |it: &Watcher| {
        [&it.metadata.namespace, &it.metadata.name].map(|it| it.clone().unwrap_or_default())
    };
    let watchers: BTreeMap<_, _> = watchers.iter().map(|it| (key(it), it)).collect();
    let live = watchers
        .values()
        .filter(|it| it.metadata.deletion_timestamp.is_none());
    let entries = webhook_entries(watchers.values().copied());
    assert_eq!(
        entries.registrations.len() + entries.rejected.len(),
        live.count()
    );
    for (_, error) in &entries.rejected {
        assert!(!error.to_string().is_empty());
    }
    let endpoint = Endpoint {
        namespace: "kyma-system",
        authorities: None,
        timeout_seconds: 1,
    };
    let object = configuration(&entries.registrations, &endpoint);
    assert!(object.is_ok(), "each entry is valid alone: {object:?}");
    let object = object.unwrap_or_default();
    for webhook in object["webhooks"].as_array().into_iter().flatten() {
        let text = |pointer| {
            webhook
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (name, path) = (text("/name"), text("/clientConfig/service/path"));
        assert!(name.len() <= 253 && name.is_ascii(), "{name}");
        let manager = path.strip_prefix("/validate/").unwrap_or_default();
        let is_segment = |it: &str| {
            it.bytes()
                .all(|it| it.is_ascii_graphic() && !b"/?#%".contains(&it))
        };
        assert!(!manager.is_empty() && is_segment(manager), "{path}");
    }
    let gateway = Gateway {
        reference: "kcp-system/gateway".to_owned(),
        hosts: vec!["kcp.test".to_owned()],
    };
    for watcher in watchers.values() {
        if let Ok(object) = virtual_service(watcher, std::slice::from_ref(&gateway)) {
            let prefix = &object["spec"]["http"][0]["match"][0]["uri"]["prefix"];
            assert!(
                prefix
                    .as_str()
                    .is_some_and(|it| it.starts_with("/v2/") && it.ends_with("/event"))
            );
        }
    }
}
