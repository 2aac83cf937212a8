//! Exact equality of JSON numbers.
//!
//! Floats are not used: beyond 2^53 two numbers would have the same float, and 1e400 has none. `1`, `1.0` and `10e-1`
//! are equal, as in the public watcher.

/// `±digits × 10^exponent`. The digits are `whole` followed by `fraction`, without leading and trailing zeros.
struct Decimal<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    exponent: i64,
}

/// Returns whether two JSON numbers have the same value. Two different notations with exponents beyond 64 bits count
/// as different.
pub(super) fn same(one: &str, other: &str) -> bool {
    match (Decimal::read(one), Decimal::read(other)) {
        (Some(one), Some(other)) => one.is(&other),
        _ => false,
    }
}

impl<'a> Decimal<'a> {
    fn read(json: &'a str) -> Option<Self> {
        let magnitude = json.strip_prefix('-').unwrap_or(json);
        let (digits, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let fraction = fraction.trim_end_matches('0');
        let all_of_whole = whole.trim_start_matches('0');
        if all_of_whole.is_empty() && fraction.is_empty() {
            return Some(Self {
                negative: false,
                whole: "",
                fraction: "",
                exponent: 0,
            });
        }
        let exponent: i64 = exponent.parse().ok()?;
        let (whole, fraction, shift) = if fraction.is_empty() {
            let whole = all_of_whole.trim_end_matches('0');
            let shift = i64::try_from(all_of_whole.len() - whole.len()).ok()?;
            (whole, "", shift)
        } else {
            let shift = i64::try_from(fraction.len()).ok()?;
            let fraction = match all_of_whole {
                "" => fraction.trim_start_matches('0'),
                _ => fraction,
            };
            (all_of_whole, fraction, -shift)
        };
        Some(Self {
            negative: json.len() != magnitude.len(),
            whole,
            fraction,
            exponent: exponent.checked_add(shift)?,
        })
    }

    fn is(&self, other: &Decimal<'_>) -> bool {
        self.negative == other.negative
            && self.exponent == other.exponent
            && self.digits().eq(other.digits())
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }
}
