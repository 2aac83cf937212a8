//! The names of the spool's files. Whatever is named otherwise is not the spool's and is left alone.

/// Highest number of a segment that we believe: there must always be a next one.
const HIGHEST: u64 = u64::MAX / 2;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A segment; later ones have higher numbers.
    Segment(u64),
    /// A segment that was being written when its writer died.
    Unfinished(u64),
    /// A segment that was kept aside.
    Aside(u64),
}

impl Named {
    pub(super) fn of(name: &str) -> Option<Self> {
        let (number, suffix) = name.split_once('.')?;
        let plain = number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(number, 16).ok().filter(|_| plain)?;
        if number > HIGHEST {
            return None;
        }
        match suffix {
            "spool" => Some(Self::Segment(number)),
            "unfinished" => Some(Self::Unfinished(number)),
            aside if aside.starts_with("aside") => Some(Self::Aside(number)),
            _ => None,
        }
    }

    pub(super) fn number(self) -> u64 {
        let (Self::Segment(number) | Self::Unfinished(number) | Self::Aside(number)) = self;
        number
    }
}

pub(super) fn segment(number: u64) -> String {
    format!("{number:016x}.spool")
}

pub(super) fn unfinished(number: u64) -> String {
    format!("{number:016x}.unfinished")
}

/// Of a segment of another version; `None`: of what is no segment at all.
pub(super) fn aside(number: u64, version: Option<u16>) -> String {
    match version {
        Some(version) => format!("{number:016x}.aside-version-{version}"),
        None => format!("{number:016x}.aside"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(segment(0x2a), Some(Named::Segment(0x2a)))]
    #[case(unfinished(HIGHEST), Some(Named::Unfinished(HIGHEST)))]
    #[case::no_number_behind_it(segment(u64::MAX), None)]
    #[case(aside(7, Some(2)), Some(Named::Aside(7)))]
    #[case(aside(7, None), Some(Named::Aside(7)))]
    #[case::lock("lock".to_owned(), None)]
    #[case::too_short("2a.spool".to_owned(), None)]
    #[case::a_sign("+00000000000002a.spool".to_owned(), None)]
    #[case::another_suffix("000000000000002a.spool.bak".to_owned(), None)]
    fn names_are_read_back(#[case] name: String, #[case] named: Option<Named>) {
        assert_eq!(Named::of(&name), named);
    }
}
