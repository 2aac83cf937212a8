//! Pods as YAML, in the style of `kubectl get -o yaml`.

use serde_json::Value;

use super::PreviewError;

/// Returns one document, without separators.
pub(super) fn document(value: &Value) -> Result<String, PreviewError> {
    let options = serde_saphyr::ser_options! {
        // Folded lines are hard to compare, and kubectl does not fold either.
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(value, options).map_err(PreviewError::WriteYaml)
}
