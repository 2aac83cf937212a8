//! Exact equality of JSON numbers.
//!
//! Floats are not used: beyond 2^53 two numbers would have the same float, and 1e400 has none. `1`, `1.0` and `10e-1`
//! are equal, as in the public watcher.

/// Returns whether two JSON numbers have the same value. Two different notations with exponents beyond 64 bits count
/// as different.
pub(super) fn same(one: &str, other: &str) -> bool {
    matches!((normalized(one), normalized(other)), (Some(one), Some(other)) if one == other)
}

/// Returns whether a number is negative, its digits without leading and trailing zeros, and the exponent of the last
/// digit. Zero has no digits and no sign.
fn normalized(json: &str) -> Option<(bool, String, i128)> {
    let magnitude = json.strip_prefix('-').unwrap_or(json);
    let (digits, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, fraction].concat();
    let digits = all.trim_end_matches('0');
    if digits.is_empty() {
        return Some((false, String::new(), 0));
    }
    let shift = i128::try_from(whole.len()).ok()? - i128::try_from(digits.len()).ok()?;
    let exponent = i128::from(exponent.parse::<i64>().ok()?) + shift;
    let is_negative = json.len() != magnitude.len();
    Some((
        is_negative,
        digits.trim_start_matches('0').to_owned(),
        exponent,
    ))
}
