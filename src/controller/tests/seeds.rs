//! Runs the properties of `fuzz` on a stable compiler, with the seed inputs of fuzzing and the inputs of earlier findings.
#![cfg(test)]

use rstest::rstest;

#[path = "../../../fuzz/properties/kubeconfig.rs"]
mod kubeconfig;

#[rstest]
fn kubeconfig_gives_one_credential_or_an_error_without_its_words(
    #[files("../../fuzz/seeds/kubeconfig/*")]
    #[mode = bytes]
    text: &[u8],
) {
    kubeconfig::check(text);
}
