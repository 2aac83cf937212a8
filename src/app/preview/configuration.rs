//! Reads the configuration document, either directly or from its ConfigMap.

use api::config::{Document, DocumentError};
use api::names::{CONFIG_KEY, PULL_SECRET};
use policy::admission::{Configuration, Settings};

use super::document::{self, JSON, Located};
use super::input::Input;

/// Text of the document, and its position.
struct Found<'a> {
    text: &'a str,
    /// Line before the first line of the text, if its lines are lines of the file.
    offset: Option<u64>,
}

/// Reads and parses the document.
pub(super) fn read(input: &Input, landscape: Option<&str>) -> anyhow::Result<Configuration> {
    let (documents, fault) = match document::documents(input) {
        Ok(documents) => (documents, None),
        // The parser of the document returns a better error message.
        Err(error) if error.format == JSON => (Vec::new(), Some(error)),
        Err(error) => return Err(error.into()),
    };
    let map = config_map(&documents, input)?;
    let found = match map {
        Some(node) => in_config_map(node, input),
        None => Found {
            text: input.text(),
            offset: Some(0),
        },
    };
    let place = |line: Option<u64>| {
        let inside = found.offset.zip(line).map(|(offset, line)| offset + line);
        input.at(inside.or_else(|| map.and_then(Located::line)))
    };
    let document = Document::parse(found.text).map_err(|source| {
        // An object without overrides is most likely a ConfigMap.
        if let (DocumentError::NoOverrides, Some(fault)) = (&source, fault) {
            return fault.into();
        }
        let line = source.line().and_then(|line| u64::try_from(line).ok());
        let line = line.or_else(|| document::line_at_path(found.text, &source.path()));
        anyhow::anyhow!("{}: {}", place(line), source.problem())
    })?;
    let settings = Settings {
        landscape: landscape.map(str::to_owned),
        pull_secret: PULL_SECRET.to_owned(),
    };
    Configuration::new(&document, &settings).map_err(|source| {
        let place = place(document::line_at_path(found.text, &source.path()));
        anyhow::Error::new(source).context(place)
    })
}

/// Returns the text of the document in a ConfigMap; `None` if the whole input is the document.
fn config_map<'a>(documents: &'a [Located], input: &Input) -> anyhow::Result<Option<&'a Located>> {
    let json = input.text().trim_start().starts_with('{');
    let found = document::find(documents, "ConfigMap", &|map| {
        let found = map.get("data")?.get(CONFIG_KEY)?;
        found.text().is_some().then_some(found)
    });
    let untyped = documents.iter().all(|it| it.get("kind").is_none());
    anyhow::ensure!(
        found.is_some() || (json && untyped),
        "{}: expected the JSON document of the configuration, or a ConfigMap with the key {CONFIG_KEY}",
        input.name()
    );
    Ok(found)
}

fn in_config_map<'a>(node: &'a Located, input: &Input) -> Found<'a> {
    let text = node.text().unwrap_or_default();
    let first = text.lines().next().unwrap_or_default().trim();
    // The lines of a block scalar are lines of the file, starting at the line of the key or the next line. The line breaks
    // of a quoted text are escapes.
    let starts_at = |line: &u64| {
        let index = usize::try_from(*line).unwrap_or_default().checked_sub(1);
        let source = index.and_then(|index| input.text().lines().nth(index));
        source.is_some_and(|source| source.trim() == first)
    };
    let start = node
        .line()
        .and_then(|line| [line, line + 1].into_iter().find(starts_at));
    Found {
        text,
        offset: start.map(|line| line - 1),
    }
}
