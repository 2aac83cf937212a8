//! Command `crds`: prints the CustomResourceDefinitions, for `kubectl apply -f -` on KCP.

use std::process::ExitCode;

use clap::Args;

use crate::edge;

/// The definitions, from files that tests compare with the types.
const DEFINITIONS: [&str; 2] = [
    include_str!("../../deploy/controller/runtimebootstrapper.crd.yaml"),
    include_str!("../../deploy/controller/runtimebootstrapperrollout.crd.yaml"),
];

/// The definition of Watchers. The lifecycle-manager installs a different definition, which this definition would replace.
const WATCHER: &str = include_str!("../../deploy/controller/watcher.crd.yaml");

/// Arguments of `crds`.
#[derive(Args, Debug)]
pub(crate) struct CrdsArgs {
    /// Print the definition of Watcher too; not where the lifecycle-manager installs it
    #[arg(long)]
    watchers: bool,
}

/// Prints the definitions as one stream of YAML documents.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(arguments: &CrdsArgs) -> std::io::Result<ExitCode> {
    let mut files = DEFINITIONS.to_vec();
    if arguments.watchers {
        files.push(WATCHER);
    }
    edge::write_out(&files.join("---\n"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::{DEFINITIONS, WATCHER};

    #[test]
    fn files_equal_the_types() {
        let types = [
            api::bootstrapper::crd(),
            api::rollout::crd(),
            api::watcher::crd(),
        ];
        for (file, types) in DEFINITIONS.into_iter().chain([WATCHER]).zip(types) {
            let file: serde_json::Value = serde_saphyr::from_str(file).unwrap();
            assert_eq!(file, serde_json::to_value(types).unwrap());
        }
    }
}
