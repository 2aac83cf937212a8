//! Reference to an object in a step: `<Kind> "namespace/name"` or `<Kind> "name"`.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use cucumber::Parameter;

use super::Cluster;

/// An object that a step names. The suffix ` on runtime "x"` names one of several runtimes, ` on KCP` the control plane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Parameter)]
#[param(
    name = "object",
    regex = r#"[A-Z][A-Za-z]+ "[^"]+"(?: on runtime "[^"]+"| on KCP)?"#
)]
pub struct ObjectRef {
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) runtime: Option<String>,
    on_kcp: bool,
}

impl ObjectRef {
    pub(crate) fn new(kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            runtime: None,
            on_kcp: false,
        }
    }

    /// Returns the cluster of the object: KCP for kinds and the namespace of the control plane, otherwise a runtime.
    pub(crate) fn cluster(&self) -> Cluster {
        let on_kcp = self.on_kcp
            || self.namespace.as_deref() == Some(api::kcp::KCP_NAMESPACE)
            || self.name == api::kcp::KCP_NAMESPACE
            || KCP_KINDS.contains(&self.kind.as_str());
        if on_kcp && self.runtime.is_none() {
            Cluster::Kcp
        } else {
            Cluster::Runtime(self.runtime.clone())
        }
    }
}

impl FromStr for ObjectRef {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('"').collect();
        let (kind, name, runtime) = match parts.as_slice() {
            [kind, name, "" | " on KCP"] => (kind, name, None),
            [kind, name, " on runtime ", runtime, ""] => (kind, name, Some((*runtime).to_owned())),
            _ => bail!("not an object: {text}"),
        };
        let (namespace, name) = match name.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None if RUNTIME_KINDS.contains(&kind.trim_end()) => {
                (Some(api::kcp::KCP_NAMESPACE), *name)
            }
            None => (None, *name),
        };
        Ok(Self {
            runtime,
            on_kcp: text.ends_with(" on KCP"),
            ..Self::new(kind.trim_end(), namespace, name)
        })
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, .. } = self;
        match &self.namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{name}"),
            None => write!(f, "{kind} {name}"),
        }
    }
}

/// Kinds whose objects are all in the namespace of the control plane, so that a step may omit it.
const RUNTIME_KINDS: [&str; 4] = [
    "Runtime",
    "RuntimeBootstrapper",
    "RuntimeBootstrapperRollout",
    "Watcher",
];
/// Kinds that only the control plane has.
const KCP_KINDS: [&str; 5] = [
    "Runtime",
    "RuntimeBootstrapper",
    "RuntimeBootstrapperRollout",
    "Watcher",
    "Certificate",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(r#"Pod "shop/web""#, "Pod shop/web", Cluster::Runtime(None))]
    #[case(r#"Node "a.b:c:1""#, "Node a.b:c:1", Cluster::Runtime(None))]
    #[case(r#"Secret "kcp-system/s""#, "Secret kcp-system/s", Cluster::Kcp)]
    #[case(r#"Secret "a/s" on KCP"#, "Secret a/s", Cluster::Kcp)]
    #[case(r#"Runtime "r""#, "Runtime kcp-system/r", Cluster::Kcp)]
    #[case(r#"Pod "a/b" on runtime "r""#, "Pod a/b", Cluster::Runtime(Some("r".into())))]
    fn reads_a_reference(#[case] text: &str, #[case] shown: &str, #[case] cluster: Cluster) {
        let object: ObjectRef = text.parse().unwrap();
        assert_eq!(object.to_string(), shown);
        assert_eq!(object.cluster(), cluster);
    }

    #[test]
    fn rejects_other_texts() {
        assert!("Pod \"a\" somewhere".parse::<ObjectRef>().is_err());
    }
}
