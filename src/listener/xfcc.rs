//! The grammar of `X-Forwarded-Client-Cert`, as Envoy writes it.
//!
//! A header is a comma-separated list of elements, one for each hop; an element is a list of `key=value`, separated by
//! semicolons. Keys have any letter case. A value with `,`, `;` or `=` in it should stand in double quotes, within
//! which a backslash guards a quote or a backslash. Envoy also leaves URIs bare when they contain `=`.
//!
//! Invariant: a text has one reading or none. What could be read in two ways (a quote within a bare value, text behind
//! a closing quote, an empty pair) is refused. Deliberately absent: which element or key means what (`forwarded`).
//!
//! It replaces the substring search of <https://github.com/kyma-project/runtime-watcher>.

const BLANKS: [char; 2] = [' ', '\t'];

/// Why a header has no reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrammarError {
    #[error("pair without '='")]
    NoEquals,
    #[error("key: not a word")]
    Key,
    #[error("unquoted value contains a quote")]
    StrayQuote,
    #[error("quoted value without end")]
    OpenQuote,
    #[error("text after a quoted value")]
    BehindQuote,
}

/// What one hop said: its pairs in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pairs: Vec<(&'a str, String)>,
}

impl Element<'_> {
    /// The values of `key`, in order.
    pub(crate) fn values<'e>(&'e self, key: &'e str) -> impl Iterator<Item = &'e str> {
        self.pairs
            .iter()
            .filter(move |(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, value)| value.as_str())
    }
}

/// Reads a whole header value.
pub(crate) fn parse(text: &str) -> Result<Vec<Element<'_>>, GrammarError> {
    let mut elements = Vec::new();
    let mut rest = text;
    loop {
        let (element, behind) = element(rest)?;
        elements.push(element);
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(elements),
        }
    }
}

fn element(text: &str) -> Result<(Element<'_>, &str), GrammarError> {
    let mut pairs = Vec::new();
    let mut rest = text;
    loop {
        let (pair, behind) = pair(rest)?;
        pairs.push(pair);
        match behind.strip_prefix(';') {
            Some(next) => rest = next,
            None => return Ok((Element { pairs }, behind)),
        }
    }
}

/// One pair, and what stands behind it: nothing, a comma or a semicolon.
fn pair(text: &str) -> Result<((&str, String), &str), GrammarError> {
    let (key, rest) = text.split_once('=').ok_or(GrammarError::NoEquals)?;
    let key = key.trim_matches(BLANKS);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(GrammarError::Key);
    }
    let (value, behind) = match rest.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => bare(rest)?,
    };
    Ok(((key, value), behind))
}

fn bare(text: &str) -> Result<(String, &str), GrammarError> {
    let end = text.find([',', ';']).unwrap_or(text.len());
    let (value, behind) = text.split_at(end);
    if value.contains('"') {
        return Err(GrammarError::StrayQuote);
    }
    Ok((value.trim_matches(BLANKS).to_owned(), behind))
}

/// The value before the closing quote, and what stands behind the quote.
///
/// Backslashes before other characters stay: Envoy copies an RFC 2253 subject, with its own escapes, into the quotes.
fn unquote(text: &str) -> Result<(String, &str), GrammarError> {
    let mut value = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next().ok_or(GrammarError::OpenQuote)? {
            '"' => break,
            '\\' => match characters.next().ok_or(GrammarError::OpenQuote)? {
                guarded @ ('"' | '\\') => value.push(guarded),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    let behind = characters.as_str().trim_start_matches(BLANKS);
    if behind.is_empty() || behind.starts_with([',', ';']) {
        Ok((value, behind))
    } else {
        Err(GrammarError::BehindQuote)
    }
}

#[cfg(test)]
mod tests;
