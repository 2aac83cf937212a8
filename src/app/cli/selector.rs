//! Label selectors as text, in the grammar of `kubectl get --selector`.
//!
//! Requirements are separated by commas: `key=value`, `key==value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key`,
//! `!key`. Keys and values have the syntax of labels, which the API server validates in the same way in selectors. The
//! operators `>` and `<`, which few clients support, are rejected.

use std::collections::BTreeSet;

use api::syntax::{is_label_key, is_label_value};
use kube::core::{Expression, Selector};

#[cfg(test)]
mod tests;

/// Reason why a text is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectorError {
    #[error("{0:?} is not a valid label key: expected [PREFIX/]NAME, such as example.com/team")]
    Key(String),
    #[error(
        "{0:?} is not a valid label value: expected at most 63 letters, digits, `-`, `_` and `.`, the first and the last \
         a letter or a digit"
    )]
    Value(String),
    #[error(
        "{0:?} is not an operator: expected one of `=`, `==`, `!=`, `in`, `notin` behind the key {1}"
    )]
    Operator(String, String),
    #[error("expected a list of values such as (a,b) behind `in` or `notin`")]
    List,
    #[error("expected a comma or the end before {0:?}")]
    End(String),
}

/// Parses a selector. An empty selector selects everything.
pub(crate) fn selector(text: &str) -> Result<Selector, SelectorError> {
    let mut reader = Reader(text);
    let mut expressions = Vec::new();
    if !reader.is_at_end() {
        expressions.push(reader.requirement()?);
    }
    while !reader.is_at_end() {
        if !reader.take(",") {
            return Err(SelectorError::End(reader.0.to_owned()));
        }
        expressions.push(reader.requirement()?);
    }
    Ok(expressions.into_iter().collect())
}

/// The remaining text.
struct Reader<'t>(&'t str);

impl<'t> Reader<'t> {
    fn is_at_end(&mut self) -> bool {
        self.0 = self.0.trim_start();
        self.0.is_empty()
    }

    /// Consumes a symbol if it is next. Returns whether it was next.
    fn take(&mut self, symbol: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(symbol);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Returns the text up to the next symbol or blank, which may be empty.
    fn word(&mut self) -> &'t str {
        let text = self.0.trim_start();
        let ends = |it: char| it.is_whitespace() || "=!(),<>".contains(it);
        let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
        self.0 = rest;
        word
    }

    fn requirement(&mut self) -> Result<Expression, SelectorError> {
        if self.take("!") {
            return Ok(Expression::DoesNotExist(self.key()?));
        }
        let key = self.key()?;
        if self.is_at_end() || self.0.starts_with(',') {
            return Ok(Expression::Exists(key));
        }
        if self.take("==") || self.take("=") {
            return Ok(Expression::Equal(key, self.value()?));
        }
        if self.take("!=") {
            return Ok(Expression::NotEqual(key, self.value()?));
        }
        let rest = self.0;
        match self.word() {
            "in" => Ok(Expression::In(key, self.values()?)),
            "notin" => Ok(Expression::NotIn(key, self.values()?)),
            _ => Err(SelectorError::Operator(rest.to_owned(), key)),
        }
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        let key = self.word();
        if is_label_key(key) {
            return Ok(key.to_owned());
        }
        Err(SelectorError::Key(key.to_owned()))
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        let value = self.word();
        if is_label_value(value) {
            return Ok(value.to_owned());
        }
        Err(SelectorError::Value(value.to_owned()))
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        // An empty list would be ambiguous.
        if !self.take("(") || self.take(")") {
            return Err(SelectorError::List);
        }
        let mut values = BTreeSet::from([self.value()?]);
        while self.take(",") {
            values.insert(self.value()?);
        }
        if !self.take(")") {
            return Err(SelectorError::List);
        }
        Ok(values)
    }
}
