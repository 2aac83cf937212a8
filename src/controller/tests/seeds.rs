//! The inputs with which fuzzing starts, and what it has found: the properties of `fuzz` on a stable compiler.
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
