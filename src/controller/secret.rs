//! Secrets of KCP, whose data is overwritten before its memory is freed: the decoded values of a Secret, and the values of one in
//! JSON. The buffers of the HTTP client, with the bodies of requests and responses, are not.

use std::collections::BTreeMap;
use std::ops::Deref;

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use zeroize::Zeroize as _;

/// A Secret whose data is zeroized when it is dropped.
pub(crate) struct ZeroizedSecret(pub(crate) Secret);

impl Deref for ZeroizedSecret {
    type Target = Secret;

    fn deref(&self) -> &Secret {
        &self.0
    }
}

impl Drop for ZeroizedSecret {
    fn drop(&mut self) {
        let data = self.0.data.iter_mut().flat_map(BTreeMap::values_mut);
        data.for_each(|it| it.0.zeroize());
    }
}

/// Overwrites the data of a Secret in JSON.
pub(crate) fn zeroize_data(secret: &mut Value) {
    let data = secret.get_mut("data").and_then(Value::as_object_mut);
    for value in data.into_iter().flat_map(serde_json::Map::values_mut) {
        if let Value::String(text) = value {
            text.zeroize();
        }
    }
}
