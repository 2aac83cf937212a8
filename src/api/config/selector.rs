//! Label selectors, with the validation rules of the API server.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// A label selector with the semantics of Kubernetes: all requirements must match, and an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must be present with exactly these values.
    #[serde(deserialize_with = "null_is_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all of them must match.
    #[serde(deserialize_with = "null_is_default")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LabelRequirement {
    /// Key of the label.
    pub key: String,
    /// How the label is compared with `values`.
    pub operator: LabelOperator,
    /// Values that the label is compared with; empty for `Exists` and `DoesNotExist`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub values: Vec<String>,
}

/// Operator of a [`LabelRequirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// Reason why the API server would reject a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// `In` and `NotIn` require values.
    #[error("required with operator In or NotIn")]
    NoValues,
    /// `Exists` and `DoesNotExist` allow no values.
    #[error("must be empty with operator Exists or DoesNotExist")]
    Values,
}

impl LabelSelector {
    /// Returns whether a set of labels matches all requirements.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|it| it.matches(labels))
    }

    /// Checks the requirements as the API server does.
    ///
    /// # Errors
    /// The index of the first invalid requirement, and the problem of its values.
    pub fn check(&self) -> Result<(), (usize, SelectorError)> {
        let checked = self.match_expressions.iter().map(LabelRequirement::check);
        checked
            .enumerate()
            .try_for_each(|(index, checked)| checked.map_err(|error| (index, error)))
    }
}

impl LabelRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            LabelOperator::In => value.is_some_and(|value| self.values.contains(value)),
            LabelOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }

    fn check(&self) -> Result<(), SelectorError> {
        match (self.operator, self.values.is_empty()) {
            (LabelOperator::In | LabelOperator::NotIn, true) => Err(SelectorError::NoValues),
            (LabelOperator::Exists | LabelOperator::DoesNotExist, false) => {
                Err(SelectorError::Values)
            }
            _ => Ok(()),
        }
    }
}

/// Deserializes null as an absent value, as the decoder of Go does.
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
