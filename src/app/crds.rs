//! Command `crds`: prints the CustomResourceDefinitions, for `kubectl apply -f -` on KCP.

use std::process::ExitCode;

use crate::edge;

/// The definitions, in the files that the types are compared with.
const DEFINITIONS: [&str; 2] = [
    include_str!("../../deploy/controller/runtimebootstrapper.crd.yaml"),
    include_str!("../../deploy/controller/runtimebootstrapperrollout.crd.yaml"),
];

/// Prints the definitions as one stream of YAML documents.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run() -> std::io::Result<ExitCode> {
    edge::write_out(&DEFINITIONS.join("---\n"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::DEFINITIONS;

    #[test]
    fn files_equal_the_types() {
        let types = [api::bootstrapper::crd(), api::rollout::crd()];
        for (file, types) in DEFINITIONS.iter().zip(types) {
            let file: serde_json::Value = serde_saphyr::from_str(file).unwrap();
            assert_eq!(file, serde_json::to_value(types).unwrap());
        }
    }
}
