//! Suggestions for names that do not exist.

use std::fmt;

/// Text in parentheses that suggests a name, behind an error about another name; empty without a suggestion.
#[derive(Clone, Copy, Debug)]
pub struct DidYouMean(pub Option<&'static str>);

impl fmt::Display for DidYouMean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, " (did you mean {name}?)"),
            None => Ok(()),
        }
    }
}

/// Similarity from which on two names count as two spellings of one name.
const SIMILAR: f64 = 0.7;

/// Maximum length in bytes of a text that is compared. Candidates are shorter than half of it, so no longer text is similar
/// to one of them. The time for a comparison grows with the length.
const LONGEST: usize = 256;

/// Returns the candidate that is most similar to a text, if one is similar enough. The comparison is case-insensitive.
#[must_use]
pub fn closest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > LONGEST {
        return None;
    }
    let text = text.to_lowercase();
    let likeness =
        |other: &str| strsim::normalized_damerau_levenshtein(&text, &other.to_lowercase());
    candidates
        .into_iter()
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(likeness, _)| *likeness >= SIMILAR)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}
