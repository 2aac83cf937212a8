//! Values that borrow from the document, and lists that are only summarized.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A JSON string, borrowed unless it contains escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

/// A string, or any other value, of which only the presence is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar<'a>(Option<Text<'a>>);

impl Scalar<'_> {
    /// Returns the text, if the value is a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;
        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = Scalar<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Scalar<'de>, E> {
                Ok(Scalar(Some(Text(Cow::Borrowed(text)))))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar<'de>, E> {
                Ok(Scalar(Some(Text(Cow::Owned(text.to_owned())))))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Scalar<'de>, E> {
                Ok(Scalar(None))
            }
            fn visit_i64<E>(self, _: i64) -> Result<Scalar<'de>, E> {
                Ok(Scalar(None))
            }
            fn visit_u64<E>(self, _: u64) -> Result<Scalar<'de>, E> {
                Ok(Scalar(None))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Scalar<'de>, E> {
                Ok(Scalar(None))
            }
            fn visit_unit<E>(self) -> Result<Scalar<'de>, E> {
                Ok(Scalar(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar(None))
            }
        }
        deserializer.deserialize_any(ScalarVisitor)
    }
}

/// A list, or null, that is summarized item by item, so that its length takes no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary<S>(pub S);

/// Summary of a list.
pub trait Summarize<'de>: Default {
    /// Item of the list.
    type Item: Deserialize<'de>;

    /// Adds the next item.
    fn add(&mut self, item: Self::Item);
}

impl<'de, S: Summarize<'de>> Deserialize<'de> for Summary<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SummaryVisitor<S>(PhantomData<S>);
        impl<'de, S: Summarize<'de>> Visitor<'de> for SummaryVisitor<S> {
            type Value = Summary<S>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_none<E>(self) -> Result<Summary<S>, E> {
                Ok(Summary(S::default()))
            }
            fn visit_unit<E: Error>(self) -> Result<Summary<S>, E> {
                self.visit_none()
            }
            fn visit_some<D: Deserializer<'de>>(self, list: D) -> Result<Summary<S>, D::Error> {
                list.deserialize_seq(self)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Summary<S>, A::Error> {
                let mut summary = S::default();
                while let Some(item) = list.next_element()? {
                    summary.add(item);
                }
                Ok(Summary(summary))
            }
        }
        deserializer.deserialize_option(SummaryVisitor(PhantomData))
    }
}
