//! JSON with the line of each value.
//!
//! The parser returns no positions, so the reader below it counts the lines that the parser has read.

use std::cell::Cell;
use std::io::{self, Read};

use api::json::describe;
use serde::de::{DeserializeSeed, Deserializer};

use super::Located;
use super::yaml::TreeVisitor;
use crate::preview::error::SyntaxError;
use crate::preview::input::Input;

/// Name of the format in errors.
pub(in crate::preview) const JSON: &str = "JSON";

/// Reader that returns a text and counts its lines.
struct Lines<'a> {
    rest: &'a [u8],
    line: &'a Cell<u64>,
}

/// Deserializes a value, whose line is the current line.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Cell<u64>);

/// Parses the documents of a stream.
pub(super) fn documents(input: &Input) -> Result<Vec<Located>, SyntaxError> {
    let line = Cell::new(1);
    let mut parser = serde_json::Deserializer::from_reader(Lines {
        rest: input.text().as_bytes(),
        line: &line,
    });
    let mut documents = Vec::new();
    // `end` skips blanks, so the line is that of the next document.
    while parser.end().is_err() {
        let document = Node(&line).deserialize(&mut parser);
        documents.push(document.map_err(|error| SyntaxError {
            place: input.at(u64::try_from(error.line()).ok()),
            format: JSON,
            problem: describe(&error),
        })?);
    }
    Ok(documents)
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.rest.read(buffer)?;
        let read = buffer.get(..count).unwrap_or_default();
        let lines = read.split(|byte| *byte == b'\n').count() as u64 - 1;
        self.line.set(self.line.get() + lines);
        Ok(count)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Located;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Located, D::Error> {
        let line = Some(self.0.get());
        let visitor = TreeVisitor {
            seed: self,
            rejects_duplicates: true,
        };
        let tree = deserializer.deserialize_any(visitor)?;
        Ok(Located { line, tree })
    }
}

#[cfg(test)]
mod tests {
    use testkit::growth::assert_proportional;

    use super::*;

    fn input(text: &str) -> Input {
        Input::from_reader("in", text.as_bytes()).unwrap()
    }

    #[test]
    fn documents_have_their_first_line() {
        let documents = documents(&input("\n{\"a\":\n1}\n\n {}{\n} ")).unwrap();
        let lines: Vec<_> = documents.iter().map(Located::line).collect();
        assert_eq!(lines, [Some(2), Some(5), Some(5)]);
    }

    /// If lines were counted from the start, the time would grow with the square of the length.
    #[test]
    fn stream_takes_time_in_proportion_to_its_length() {
        let stream = |count: usize| (count, input(&"{\"a\": 1}\n".repeat(count)));
        assert_proportional(1000, stream, |(count, stream)| {
            assert_eq!(documents(stream).unwrap().len(), *count);
        });
    }
}
