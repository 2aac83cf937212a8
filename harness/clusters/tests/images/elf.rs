//! As much of the ELF format as is needed to say whether a program stands alone.
//!
//! Source: elf(5); 64-bit, little-endian, which is all that the product is built for.

/// What an ELF file says about itself.
pub(crate) struct Elf {
    /// It names a dynamic linker (`PT_INTERP`).
    pub(crate) has_interpreter: bool,
    /// It carries a symbol table (`SHT_SYMTAB`).
    pub(crate) has_symbols: bool,
}

impl Elf {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        assert_eq!(
            &bytes[..6],
            b"\x7fELF\x02\x01",
            "no 64-bit little-endian ELF file"
        );
        let segments = Table {
            offset: number(bytes, 32, 8),
            entry: number(bytes, 54, 2),
            count: number(bytes, 56, 2),
        };
        let sections = Table {
            offset: number(bytes, 40, 8),
            entry: number(bytes, 58, 2),
            count: number(bytes, 60, 2),
        };
        assert!(segments.count > 0, "no program header");
        Self {
            has_interpreter: segments.types(bytes, 0).any(|kind| kind == PT_INTERP),
            has_symbols: sections.types(bytes, 4).any(|kind| kind == SHT_SYMTAB),
        }
    }
}

struct Table {
    offset: usize,
    entry: usize,
    count: usize,
}

impl Table {
    /// The type of every entry; it stands `within` bytes after the entry's beginning.
    fn types(&self, bytes: &[u8], within: usize) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |at| number(bytes, self.offset + at * self.entry + within, 4))
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length]
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | usize::from(*byte))
}

const PT_INTERP: usize = 3;
const SHT_SYMTAB: usize = 2;
