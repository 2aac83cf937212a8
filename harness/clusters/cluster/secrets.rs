//! Check that outputs of the product do not contain data of Secrets: logs and metrics of its Pods, all Events, and what it writes
//! into other objects (statuses, annotations, ConfigMaps).
//!
//! The check runs for every cluster of every suite when the cluster is stopped, with the Secrets that exist then.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::Cluster;
use crate::docker;

impl Cluster {
    /// Fails if a log of a Pod of the product, an Event, an object that the product writes or a page of metrics contains data of a
    /// Secret of the cluster. The error names the location and not the data.
    pub(super) async fn shows_no_secret(&self) -> anyhow::Result<()> {
        let list = ["get", "secrets", "--all-namespaces", "--output=json"];
        let list: Value = serde_json::from_str(&self.kubectl(&list).await?)?;
        let secrets = list["items"].as_array().context("no list of Secrets")?;
        let mut names = BTreeMap::new();
        for secret in secrets {
            names.extend(contents(secret).into_iter().map(|it| (it, name(secret))));
        }
        let mut contents: Vec<&str> = names.keys().map(String::as_str).collect();
        if contents.is_empty() {
            return Ok(());
        }
        // The file has one text in each line; an empty text would match everywhere. The search must find the last text.
        contents.extend([CONTROL, ""]);
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), contents.join("\n"))?;
        let (from, to) = (file.path().display(), self.node.id());
        docker::must(&["cp", &from.to_string(), &format!("{to}:{CONTENTS}")]).await?;
        let found = self.exec_on_node(&["sh", "-c", SEARCH]).await?;
        ensure!(found.code == 0, "{}: {}", self.name, found.stderr);
        let places: BTreeSet<String> = found
            .stdout
            .lines()
            .map(|line| place(line, &names))
            .collect();
        ensure!(
            places.is_empty(),
            "{}: content of a Secret is shown in:\n{}",
            self.name,
            Vec::from_iter(places).join("\n")
        );
        Ok(())
    }
}

fn name(secret: &Value) -> String {
    let metadata = &secret["metadata"];
    let part = |key| metadata[key].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}

/// Returns the location in a line of the search with the Secret instead of its content.
fn place(line: &str, names: &BTreeMap<String, String>) -> String {
    let (place, content) = line.split_once('\t').unwrap_or((line, ""));
    let secret = names.get(content).map_or("unknown", String::as_str);
    format!("{place}, Secret {secret}")
}

/// Returns the texts of a Secret that must not appear: the start of each encoded value, the credentials of registries, and the
/// parts of values that are long enough to be a token or a line of a key.
fn contents(secret: &Value) -> BTreeSet<String> {
    let mut contents = BTreeSet::new();
    // This Secret contains hashes of data that is logged, and the document, which is public.
    if secret["metadata"]["name"] == api::names::REPAIR_RECORD {
        return contents;
    }
    let data = secret["data"].as_object();
    for value in data.into_iter().flat_map(Map::values) {
        let encoded = value.as_str().unwrap_or_default();
        let decoded = BASE64.decode(encoded).unwrap_or_default();
        let decoded = String::from_utf8_lossy(&decoded);
        // Certificates are public.
        if decoded.starts_with(CERTIFICATE) && !decoded.contains(PRIVATE_KEY) {
            continue;
        }
        let parts = decoded.split(|it: char| !it.is_ascii_alphanumeric() && !"+/=".contains(it));
        let parts = parts.chain([encoded.get(..ENCODED).unwrap_or(encoded)]);
        contents.extend(parts.filter(|it| it.len() >= SHORTEST).map(str::to_owned));
        let config: Value = serde_json::from_str(&decoded).unwrap_or_default();
        let auths = config["auths"].as_object().into_iter().flatten();
        let credentials = auths.flat_map(|(_, auth)| ["password", "auth"].map(|it| &auth[it]));
        let credentials = credentials.filter_map(Value::as_str);
        let credentials = credentials.filter(|it| it.len() >= SHORTEST_CREDENTIAL);
        contents.extend(credentials.map(str::to_owned));
    }
    contents
}

/// Start of a value with certificates.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// Text in a value with a private key.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";
/// Shortest length of a part of a value in bytes. Shorter parts are names; the tokens of the harness are longer.
const SHORTEST: usize = 20;
/// Shortest length of a password of a registry in bytes. A shorter one may occur anywhere.
const SHORTEST_CREDENTIAL: usize = 12;
/// Length of the start of an encoded value, in characters.
const ENCODED: usize = 60;
/// Control text, which the search must find.
const CONTROL: &str = "control-of-the-search-for-secrets";
/// File on the node; it is removed with the container.
const CONTENTS: &str = "/secret-contents";
/// Script that prints the locations that contain a line of that file, each with the line after a tab. It skips Pods that do not
/// serve metrics.
const SEARCH: &str = r#"
export KUBECONFIG=/etc/rancher/k3s/k3s.yaml
occurs() { grep -oFf /secret-contents | sort -u | while read -r line; do printf '%s\t%s\n' "$1" "$line"; done; }
[ -n "$(echo control-of-the-search-for-secrets | occurs found)" ] || exit 3
kubectl get events --all-namespaces --output=yaml >/tmp/events || exit 4
occurs Events </tmp/events
kubectl api-resources --verbs=list --output=name >/tmp/kinds || exit 5
# Without a node, the product runs elsewhere, with thousands of objects.
kubectl get nodes --output=name >/tmp/nodes || exit 6
for kind in $([ -s /tmp/nodes ] && grep -E '(kyma-project|cert-manager|istio)\.io$' /tmp/kinds); do
  kubectl get "$kind" --all-namespaces --output=yaml >/tmp/objects || exit 7
  occurs "$kind" </tmp/objects
done
for namespace in kyma-system kcp-system; do
  kubectl get configmaps,deployments,leases --namespace "$namespace" --output=yaml >/tmp/objects || exit 8
  occurs "objects in $namespace" </tmp/objects
  for log in $(find /var/log/pods -name '*.log' -path "*/${namespace}_*" 2>/dev/null); do
    occurs "$log" <"$log"
  done
  for pod in $(kubectl get pods --namespace "$namespace" --output=name); do
    for port in 8080 2112; do
      kubectl get --raw "/api/v1/namespaces/$namespace/pods/${pod#pod/}:$port/proxy/metrics" 2>/dev/null | occurs "metrics of $pod"
    done
  done
done
true
"#;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn passwords_tokens_and_keys_are_contents_and_names_are_not() {
        let config = json!({ "auths": { "registry.landscape.test:5000": {
            "username": "landscape", "password": "0123456789abcdef01234567",
        }, "another.test": { "username": "landscape", "password": "canary-of-one" } } });
        let key =
            "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA+/\n-----END PRIVATE KEY-----\n";
        let certificate =
            format!("{CERTIFICATE}\nMIIBszCCAVmgAwIBAgIUQ0FDQ0FD\n-----END CERTIFICATE-----\n");
        let encoded = |text: &str| BASE64.encode(text);
        let secret = json!({ "metadata": { "namespace": "a", "name": "x" }, "data": {
            ".dockerconfigjson": encoded(&config.to_string()), "tls.key": encoded(key),
            "tls.crt": encoded(&certificate), "cert-chain.pem": encoded(&certificate),
        } });
        let contents = contents(&secret);
        assert_eq!(contents.len(), 5, "{contents:?}");
        let found = contents.iter().map(|it| (it.clone(), name(&secret)));
        let names = found.collect();
        assert_eq!(place("Events\tcanary-of-one", &names), "Events, Secret a/x");
        assert!(contents.contains("canary-of-one"));
        assert!(contents.contains("0123456789abcdef01234567"));
        assert!(contents.contains("MC4CAQAwBQYDK2VwBCIEIA+/"));
        assert!(contents.contains(&encoded(key)[..ENCODED]));
    }
}
