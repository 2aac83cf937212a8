//! CRC32C (Castagnoli), as iSCSI and ext4 use it: finds every change of up to 32 neighbouring bits.
//!
//! Deliberately absent: the processor's own instruction, which needs unsafe code; a record is a hundred bytes.

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

static TABLE: [u32; 256] = table();

/// The checksum of `parts`, one after the other.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for part in parts {
        for byte in *part {
            let [low, ..] = crc.to_le_bytes();
            crc = (crc >> 8) ^ TABLE[usize::from(low ^ byte)];
        }
    }
    !crc
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    let mut value = 0_u32;
    while index < table.len() {
        let mut crc = value;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
        value += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// RFC 3720, B.4, and the customary check value.
    #[rstest]
    #[case::check(b"123456789", 0xE306_9283)]
    #[case::zeroes(&[0; 32], 0x8A91_36AA)]
    #[case::ones(&[0xFF; 32], 0x62A8_AB43)]
    #[case::nothing(b"", 0)]
    fn known_values(#[case] bytes: &[u8], #[case] crc: u32) {
        assert_eq!(crc32c(&[bytes]), crc);
        let (left, right) = bytes.split_at(bytes.len() / 2);
        assert_eq!(crc32c(&[left, right]), crc);
    }
}
