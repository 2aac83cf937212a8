//! What was probably meant by a name that does not exist.

/// From here on two names are taken for two spellings of one.
const SIMILAR: f64 = 0.7;

/// Length in bytes of the longest text that is compared. Candidates are shorter than half of it, so that no longer text is
/// similar to one; the time for a comparison grows with the length.
const LONGEST: usize = 256;

/// The candidate that is most like a text, if one is like it at all. Upper and lower case do not count.
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
