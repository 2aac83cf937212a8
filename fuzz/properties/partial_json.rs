//! If `serde_json` accepts a document, the partial parser returns the same result. For other bytes it returns a value or an
//! error.

use std::collections::BTreeMap;

use partial_json::{Scalar, Text, from_str};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A field of each kind that is used for reviews.
#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Wanted<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    flag: Option<bool>,
    #[serde(borrow)]
    scalar: Option<Scalar<'a>>,
    presence: Option<IgnoredAny>,
    #[serde(borrow)]
    texts: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    map: Option<BTreeMap<String, Scalar<'a>>>,
    below: Option<Box<Self>>,
}

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read = from_str::<Wanted<'_>>(text, usize::MAX);
    if let Ok(expected) = serde_json::from_str::<Wanted<'_>>(text) {
        assert_eq!(read, Ok(expected), "{text}");
    }
}
