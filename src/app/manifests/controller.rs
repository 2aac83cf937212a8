//! The controller's manifests.

use api::names::PULL_SECRET;
use api::runtimes::KCP_NAMESPACE;
use clap::Args;

use super::{image, namespace, secret_name};

/// The image that the files name.
const IMAGE: &str = concat!(
    "ghcr.io/kyma-project/runtime-bootstrapper-controller:",
    env!("CARGO_PKG_VERSION")
);

/// The line of the Deployment below which the Secret for our own image is named.
const PULL_SECRETS_BELOW: &str = "      # imagePullSecrets follow here, if `manifests controller --pull-secret NAME` was told of a private registry.\n";

/// The line of the Deployment that chooses the parts.
const PARTS: &str = "        - --controllers=signal\n";

/// The line of the Role that names the pull Secret among the sources.
const SOURCE: &str = "  resourceNames: [registry-credentials]\n";

const COMMON: [&str; 6] = [
    include_str!("../../../deploy/controller/serviceaccount.yaml"),
    include_str!("../../../deploy/controller/rbac-common.yaml"),
    include_str!("../../../deploy/controller/service.yaml"),
    include_str!("../../../deploy/controller/networkpolicy.yaml"),
    include_str!("../../../deploy/controller/poddisruptionbudget.yaml"),
    include_str!("../../../deploy/controller/deployment.yaml"),
];

/// The rights that part `direct` has beyond the others.
const DIRECT: &str = include_str!("../../../deploy/controller/rbac-direct.yaml");

/// What may differ from one installation to another.
#[derive(Args, Debug)]
pub(crate) struct ControllerArgs {
    /// The controller's image
    #[arg(long, value_parser = image, default_value = IMAGE)]
    image: String,
    /// The Secret that the image is pulled with, if its registry is private; it has to be in the namespace
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    pull_secret: Option<String>,
    /// The pull Secret that is rolled out
    #[arg(long, value_name = "NAME", value_parser = secret_name, default_value = PULL_SECRET)]
    kcp_pull_secret_name: String,
    /// The namespace, which has to exist
    #[arg(long, value_parser = namespace, default_value = KCP_NAMESPACE)]
    namespace: String,
    /// With direct mode: rights to read kubeconfigs, and the custom resource's part runs as well
    #[arg(long)]
    direct: bool,
    /// Further flags of the controller, as in `-- --kcp-cluster-trust-bundle=NAME`
    #[arg(last = true, value_parser = flag)]
    flags: Vec<String>,
}

/// The manifests as text.
pub(super) fn text(arguments: &ControllerArgs) -> String {
    let mut documents: Vec<&str> = COMMON.to_vec();
    if arguments.direct {
        documents.insert(2, DIRECT);
    }
    let mut parts = vec![if arguments.direct {
        PARTS.replace("=signal", "=signal,direct")
    } else {
        PARTS.to_owned()
    }];
    let name = &arguments.kcp_pull_secret_name;
    let renamed = (name != PULL_SECRET).then(|| format!("--kcp-pull-secret-name={name}"));
    let flags = arguments.flags.iter().chain(&renamed);
    parts.extend(flags.map(|flag| format!("        - \"{flag}\"\n")));
    let mut text = documents
        .join("---\n")
        .replace(PARTS, &parts.concat())
        .replace(KCP_NAMESPACE, &arguments.namespace)
        .replace(IMAGE, &arguments.image)
        .replace(
            SOURCE,
            &format!(
                "  resourceNames: [\"{}\"]\n",
                arguments.kcp_pull_secret_name
            ),
        );
    if let Some(name) = &arguments.pull_secret {
        text = text.replace(
            PULL_SECRETS_BELOW,
            &format!("{PULL_SECRETS_BELOW}      imagePullSecrets:\n      - name: \"{name}\"\n"),
        );
    }
    text
}

/// A flag stands in quotes, so that nothing in it can change the structure.
pub(super) fn flag(text: &str) -> Result<String, &'static str> {
    let plain = |character: char| !character.is_control() && !matches!(character, '"' | '\\');
    if text.starts_with("--") && text.chars().all(plain) && !text.contains("---") {
        Ok(text.to_owned())
    } else {
        Err(
            "not a flag: it begins with `--` and holds no quotes, backslashes, control characters or `---`",
        )
    }
}
