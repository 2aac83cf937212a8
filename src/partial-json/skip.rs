//! Search for the end of a value, without parsing its content.

use wide::u8x16;

/// Returns the length of the string whose opening quote precedes `bytes`, including its closing quote.
#[inline]
pub(super) fn string(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += plain(bytes.get(at..)?);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            // Skips the escape and the escaped character.
            b'\\' => at += 2,
            _ => return None,
        }
    }
}

/// Returns the number of bytes of a string before its closing quote, an escape, or a control character, which is invalid in
/// a string.
#[inline]
pub(super) fn plain(bytes: &[u8]) -> usize {
    const CONTROL: u8x16 = u8x16::new([0x1f; 16]);
    let (lanes, tail) = bytes.as_chunks::<16>();
    for (index, lane) in lanes.iter().enumerate() {
        let lane = u8x16::new(*lane);
        let found = lane.simd_eq(u8x16::splat(b'"'))
            | lane.simd_eq(u8x16::splat(b'\\'))
            | lane.min(CONTROL).simd_eq(lane);
        let found = found.to_bitmask();
        if found != 0 {
            return index * 16 + found.trailing_zeros() as usize;
        }
    }
    let is_plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | ..0x20);
    lanes.len() * 16 + tail.iter().take_while(is_plain).count()
}

/// Returns the length of the number, `true`, `false` or `null` at the start of `bytes`.
pub(super) fn scalar(bytes: &[u8]) -> Option<usize> {
    let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let length = bytes.iter().take_while(|byte| is_inside(byte)).count();
    (length > 0).then_some(length)
}

/// Returns the length of the object or array at the start of `bytes`.
pub(super) fn container(bytes: &[u8]) -> Option<usize> {
    let mut nesting = Nesting::default();
    let (blocks, tail) = bytes.as_chunks::<64>();
    for (index, block) in blocks.iter().enumerate() {
        if let Some(end) = nesting.block(block) {
            return Some(index * 64 + end);
        }
    }
    nesting.bytes(tail).map(|end| blocks.len() * 64 + end)
}

/// Current depth of containers, and whether the position is in a string.
#[derive(Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Skips 64 bytes at once. Returns the position after the bracket that ends the outermost container.
    #[inline]
    fn block(&mut self, block: &[u8; 64]) -> Option<usize> {
        let marks = Marks::of(block);
        let quotes = marks.quotes & !self.escaped(marks.escapes);
        let inside = parity(quotes) ^ if self.in_string { u64::MAX } else { 0 };
        self.in_string = inside >> 63 == 1;
        let (opens, closes) = (marks.opens & !inside, marks.closes & !inside);
        if self.depth > closes.count_ones() as usize {
            self.depth += opens.count_ones() as usize;
            self.depth -= closes.count_ones() as usize;
            return None;
        }
        self.brackets(opens, closes)
    }

    /// Returns the positions after an escape. Keys of managed fields contain a few: `k:{\"name\":\"app\"}`.
    #[inline]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        let mut behind = u64::from(self.escaped);
        // A backslash that is escaped itself is not an escape.
        let mut left = backslashes & !behind;
        self.escaped = false;
        while left != 0 {
            let next = (left & left.wrapping_neg()) << 1;
            self.escaped = next == 0;
            behind |= next;
            left &= (left - 1) & !next;
        }
        behind
    }

    /// Processes each bracket separately, because the end may be among them.
    #[inline]
    fn brackets(&mut self, opens: u64, closes: u64) -> Option<usize> {
        let mut left = opens | closes;
        while left != 0 {
            let place = left.trailing_zeros();
            left &= left - 1;
            if opens >> place & 1 == 1 {
                self.depth += 1;
                continue;
            }
            self.depth = self.depth.checked_sub(1)?;
            if self.depth == 0 {
                return Some(place as usize + 1);
            }
        }
        None
    }

    fn bytes(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1)?;
                    if self.depth == 0 {
                        return Some(index + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// Returns for each bit whether the number of set bits up to and including it is odd, which is the case between a quote and
/// the next quote.
#[inline]
fn parity(bits: u64) -> u64 {
    [1, 2, 4, 8, 16, 32]
        .into_iter()
        .fold(bits, |bits, shift| bits ^ (bits << shift))
}

/// Positions of the relevant characters in 64 bytes; bit 0 is the first byte.
#[derive(Default)]
struct Marks {
    quotes: u64,
    escapes: u64,
    opens: u64,
    closes: u64,
}

/// Bit that maps brackets to braces: `{` is `[` with this bit. It maps no other character to a brace that is valid outside
/// of strings.
const CASE: u8 = 0x20;

impl Marks {
    /// Finds the characters, sixteen bytes at a time.
    #[inline]
    fn of(block: &[u8; 64]) -> Self {
        let places =
            |lane: u8x16, byte: u8| u64::from(lane.simd_eq(u8x16::splat(byte)).to_bitmask());
        let mut marks = Self::default();
        for (index, lane) in block.as_chunks::<16>().0.iter().enumerate() {
            let lane = u8x16::new(*lane);
            let folded = lane | u8x16::splat(CASE);
            let shift = index * 16;
            marks.quotes |= places(lane, b'"') << shift;
            marks.escapes |= places(lane, b'\\') << shift;
            marks.opens |= places(folded, b'{') << shift;
            marks.closes |= places(folded, b'}') << shift;
        }
        marks
    }
}
