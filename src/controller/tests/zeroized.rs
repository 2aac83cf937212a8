//! Test of the copies of a credential in the memory of a process. It runs in its own process, because other tests
//! would have copies.
#![cfg(test)]

use std::fs::{File, read_to_string};
use std::io::{Read as _, Seek as _, SeekFrom};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use controller::clients::kubeconfig::parse;
use controller::clients::{ClientMetrics, ClientOptions, RuntimeClients};
use prometheus_client::registry::Registry;
use testkit::pki::Authority;
use zeroize::Zeroizing;

/// Length of the secret, and the range of bytes that the test searches: an allocator overwrites the first bytes of
/// freed memory.
const LENGTH: usize = 2_000;
const FROM: usize = 500;
const UNTIL: usize = 548;

/// Returns a byte of the secret. Only the memory under test contains the complete secret.
fn byte(index: usize) -> u8 {
    let mixed = index.wrapping_mul(2_654_435_761) >> 7;
    b'a' + u8::try_from(mixed % 26).unwrap()
}

/// Returns the number of copies of the secret in the memory of this process.
fn copies() -> usize {
    let maps = read_to_string("/proc/self/maps").unwrap();
    let mut memory = File::open("/proc/self/mem").unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|it| it.contains(" rw-p ")) {
        let (from, until) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, until] = [from, until].map(|it| u64::from_str_radix(it, 16).unwrap());
        // The region is zeroized, because the next search would find it as a copy.
        let mut region = Zeroizing::new(vec![0; usize::try_from(until - from).unwrap()]);
        memory.seek(SeekFrom::Start(from)).unwrap();
        if memory.read_exact(&mut region).is_err() {
            continue;
        }
        found += region
            .windows(UNTIL - FROM)
            .filter(|window| {
                window
                    .iter()
                    .zip(FROM..)
                    .all(|(it, index)| *it == byte(index))
            })
            .count();
    }
    found
}

/// Returns a kubeconfig with the secret as its token.
fn kubeconfig(authority: &Authority) -> Zeroizing<String> {
    let authority = STANDARD.encode(&authority.certificate.pem);
    // The capacity is sufficient for all of the text, since growing would leave copies in memory.
    let mut text = Zeroizing::new(String::with_capacity(2 * LENGTH + authority.len()));
    text.push_str(
        "{kind: Config, apiVersion: v1, current-context: a, contexts: [{name: a, context: ",
    );
    text.push_str(
        "{cluster: a, user: a}}], clusters: [{name: a, cluster: {server: https://api.example, ",
    );
    text.push_str("certificate-authority-data: ");
    text.push_str(&authority);
    text.push_str("}}], users: [{name: a, user: {token: ");
    text.extend((0..LENGTH).map(|index| char::from(byte(index))));
    text.push_str("}}]}");
    text
}

#[tokio::test]
async fn a_token_is_gone_with_its_client() {
    let text = kubeconfig(&Authority::new("kubernetes").unwrap());
    let access = parse(text.as_bytes()).unwrap();
    drop(text);
    let metrics = ClientMetrics::register(&mut Registry::default());
    let remote = RuntimeClients::new(ClientOptions::default(), metrics).open(access);
    assert!(copies() > 0);
    drop(remote);
    assert_eq!(copies(), 0);
}
