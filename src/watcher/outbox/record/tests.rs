use rstest::rstest;

use super::*;

/// Values from RFC 3720, B.4, and the common check value.
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
