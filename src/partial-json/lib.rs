//! Parser for JSON documents of which only a few fields are required, such as an AdmissionReview.
//!
//! The derive macro of serde specifies the required fields. For other values the parser only searches the end, without
//! recursion, so their depth has no limit and no cost.
//!
//! Invariants: required fields are parsed as in `serde_json`. Skipped values must be terminated (strings by their quote,
//! containers by as many brackets as they opened) and are not checked further. Therefore the document should come from a
//! program that has encoded it itself, as an API server does. An error has no details: parse the document with `serde_json`
//! to get them.
//!
//! Not supported: numbers (they can be skipped), and positions in errors. `serde_json` parses strings with escapes.
//!
//! Reason for a separate parser: with sonic-rs 0.5 a typical review (10 kB) takes 1.9 times as long as with this parser,
//! with its lazy values 3.5 times, and with `serde_json` 2.2 times. The webhook spends a sixth of the time of a review in
//! this parser.

mod skip;
mod text;

#[cfg(test)]
extern crate self as partial_json;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

pub use text::{Scalar, Summarize, Summary, Text};

/// The text is not JSON of the required structure within the limit, as far as this parser detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not JSON of the wanted shape within the limit")]
pub struct Unread;

impl de::Error for Unread {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// Parses the only document in `text`. All required lists together may have `max_items` items, because an item takes up to
/// eighty times the size of its text in memory.
///
/// # Errors
/// [`Unread`] if the text is not a document, does not have the structure of `T`, or has more items.
pub fn from_str<'a, T: Deserialize<'a>>(text: &'a str, max_items: usize) -> Result<T, Unread> {
    let mut reader = Reader {
        text,
        at: 0,
        items: max_items,
    };
    let value = T::deserialize(&mut reader)?;
    match reader.peek() {
        Err(Unread) => Ok(value),
        Ok(_) => Err(Unread),
    }
}

/// Returns whether a text can be written in quotes without an escape.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    skip::plain(text.as_bytes()) == text.len()
}

/// The remaining text: `text` from `at` on, with at most `items` list items.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    items: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Returns the next byte that is not white space; `Unread` at the end.
    fn peek(&mut self) -> Result<u8, Unread> {
        loop {
            match self.text.as_bytes().get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&byte) => return Ok(byte),
                None => return Err(Unread),
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Unread> {
        if self.peek()? != wanted {
            return Err(Unread);
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes the literal if it is next. Returns whether it was next.
    fn take(&mut self, literal: &str) -> bool {
        let found = self.rest().starts_with(literal.as_bytes());
        if found {
            self.at += literal.len();
        }
        found
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Unread> {
        self.expect(b'"')?;
        let start = self.at;
        let length = skip::plain(self.rest());
        self.at += length;
        if self.take("\"") {
            let text = self.text.get(start..start + length).ok_or(Unread)?;
            return Ok(Cow::Borrowed(text));
        }
        self.escaped(start)
    }

    /// Parses the string that started at `start` and has an escape at the current position.
    #[cold]
    #[inline(never)]
    fn escaped(&mut self, start: usize) -> Result<Cow<'a, str>, Unread> {
        self.at += skip::string(self.rest()).ok_or(Unread)?;
        let quoted = self.text.get(start - 1..self.at).ok_or(Unread)?;
        serde_json::from_str(quoted)
            .map(Cow::Owned)
            .map_err(|_| Unread)
    }

    /// Skips a value.
    fn skip(&mut self) -> Result<(), Unread> {
        let length = match self.peek()? {
            b'"' => {
                self.at += 1;
                skip::string(self.rest())
            }
            b'{' | b'[' => skip::container(self.rest()),
            _ => skip::scalar(self.rest()),
        };
        self.at += length.ok_or(Unread)?;
        Ok(())
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Unread;

    /// Deserializes a string, or any other value as a unit. For other values, visitors only need their presence.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        if self.peek()? == b'"' {
            return self.deserialize_str(visitor);
        }
        self.deserialize_ignored_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        match self.string()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        match self.peek()? {
            b't' if self.take("true") => visitor.visit_bool(true),
            b'f' if self.take("false") => visitor.visit_bool(false),
            _ => Err(Unread),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        match self.peek()? {
            b'n' if self.take("null") => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.expect(b'[')?;
        let mut elements = Elements::until(b']', self);
        let value = visitor.visit_seq(&mut elements)?;
        elements.ended(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.expect(b'{')?;
        let mut elements = Elements::until(b'}', self);
        let value = visitor.visit_map(&mut elements)?;
        elements.ended(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        self.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct enum
    }
}

/// Content of a container.
struct Elements<'r, 'a> {
    reader: &'r mut Reader<'a>,
    close: u8,
    place: Place,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Start,
    Inside,
    End,
}

impl<'r, 'a> Elements<'r, 'a> {
    fn until(close: u8, reader: &'r mut Reader<'a>) -> Self {
        Self {
            reader,
            close,
            place: Place::Start,
        }
    }

    /// Returns whether there is another element. The position is then before the element, and otherwise after the bracket.
    #[inline]
    fn more(&mut self) -> Result<bool, Unread> {
        if self.reader.peek()? == self.close {
            self.reader.at += 1;
            self.place = Place::End;
            return Ok(false);
        }
        if self.place == Place::Inside {
            self.reader.expect(b',')?;
        }
        self.place = Place::Inside;
        Ok(true)
    }

    fn ended<T>(self, value: T) -> Result<T, Unread> {
        if self.place == Place::End {
            Ok(value)
        } else {
            Err(Unread)
        }
    }
}

impl<'de> SeqAccess<'de> for &mut Elements<'_, 'de> {
    type Error = Unread;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unread> {
        if !self.more()? {
            return Ok(None);
        }
        self.reader.items = self.reader.items.checked_sub(1).ok_or(Unread)?;
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> MapAccess<'de> for &mut Elements<'_, 'de> {
    type Error = Unread;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unread> {
        if !self.more()? {
            return Ok(None);
        }
        if self.reader.peek()? != b'"' {
            return Err(Unread);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unread> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}
