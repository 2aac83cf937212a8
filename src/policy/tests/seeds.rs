//! The seeds of fuzzing, and the inputs that fuzzing has found: the properties of `fuzz` on a stable compiler.

use rstest::rstest;

#[path = "../../../fuzz/properties/change.rs"]
mod change;
#[path = "../../../fuzz/properties/configuration.rs"]
mod configuration;
#[path = "../../../fuzz/properties/docker_config.rs"]
mod docker_config;
#[path = "../../../fuzz/properties/image_reference.rs"]
mod image_reference;
#[path = "../../../fuzz/properties/review.rs"]
mod review;
#[path = "../../../fuzz/properties/watchers.rs"]
mod watchers;

#[rstest]
fn a_changed_object_becomes_an_event_that_a_listener_accepts(
    #[files("../../fuzz/seeds/change/*")]
    #[mode = bytes]
    body: &[u8],
) {
    change::check(body);
}

#[rstest]
fn a_configuration_means_the_same_however_it_is_written(
    #[files("../../fuzz/seeds/configuration/*")]
    #[mode = bytes]
    text: &[u8],
) {
    configuration::check(text);
}

#[rstest]
fn a_docker_config_is_a_keyring_or_an_error_without_its_words(
    #[files("../../fuzz/seeds/docker_config/*")]
    #[mode = bytes]
    text: &[u8],
) {
    docker_config::check(text);
}

#[rstest]
fn an_image_reference_is_its_parts(
    #[files("../../fuzz/seeds/image_reference/*")]
    #[mode = bytes]
    text: &[u8],
) {
    image_reference::check(text);
}

#[rstest]
fn a_patch_fits_its_pod_and_a_second_pass_is_empty(
    #[files("../../fuzz/seeds/review/*")]
    #[mode = bytes]
    body: &[u8],
) {
    review::check(body);
}

#[rstest]
fn watchers_give_entries_that_api_servers_take(
    #[files("../../fuzz/seeds/watchers/*")]
    #[mode = bytes]
    text: &[u8],
) {
    watchers::check(text);
}
