//! Role `crds`: the definitions of our custom resources, for `kubectl apply -f -` on KCP.

use std::process::ExitCode;

use crate::edge;

const RUNTIME_BOOTSTRAPPER: &str =
    include_str!("../../deploy/controller/runtimebootstrapper.crd.yaml");

/// Prints them.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run() -> std::io::Result<ExitCode> {
    edge::write_out(RUNTIME_BOOTSTRAPPER)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::RUNTIME_BOOTSTRAPPER;

    #[test]
    fn the_file_says_what_the_types_say() {
        let file: serde_json::Value = serde_saphyr::from_str(RUNTIME_BOOTSTRAPPER).unwrap();
        let types = serde_json::to_value(api::bootstrapper::crd()).unwrap();
        assert_eq!(file, types);
    }
}
