//! The identity of the registry: authority, certificate, user and password.
//!
//! Made once and then read again, so that kept clusters go on trusting it. It is of no use outside this machine: the name
//! does not exist elsewhere.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use testkit::pki::Authority;
use testkit::pki::rcgen::SanType;

use super::{NAME, host};
use crate::images::digest;
use crate::workspace;

/// What the registry presents, and what its clients present to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The authority's certificate.
    pub ca_pem: String,
    /// The registry's own certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
    /// The user who may pull and push.
    pub user: String,
    /// The password of that user.
    pub password: String,
}

impl Identity {
    /// The one that was made first on this machine.
    pub fn load_or_make() -> anyhow::Result<Self> {
        Self::at(&workspace::state().join("registry.json"))
    }

    fn at(file: &Path) -> anyhow::Result<Self> {
        let text =
            workspace::get_or_create(file, || Ok(serde_json::to_string_pretty(&Self::make()?)?))?;
        Ok(serde_json::from_str(&text)?)
    }

    fn make() -> anyhow::Result<Self> {
        let ca = Authority::new("registry authority of the harness")?;
        let name = SanType::DnsName(NAME.try_into()?);
        let leaf = ca.leaf_with(NAME, |params| params.subject_alt_names.push(name))?;
        Ok(Self {
            ca_pem: ca.pem().to_owned(),
            certificate_pem: leaf.pem.clone(),
            key_pem: leaf.key_pem(),
            user: "landscape".to_owned(),
            // The digest of a fresh key is as random as a key, and needs no further source of chance.
            password: digest(leaf.key.serialized_der())["sha256:".len()..][..24].to_owned(),
        })
    }

    /// The file by which the registry knows user and password: the format of `htpasswd -B`.
    pub(super) fn htpasswd(&self) -> anyhow::Result<String> {
        // The least cost: every request is checked.
        let hash = bcrypt::hash(&self.password, 4)?;
        Ok(format!("{}:{hash}\n", self.user))
    }

    /// The content of a Secret of type `kubernetes.io/dockerconfigjson` with user and password.
    #[must_use]
    pub fn docker_config(&self) -> String {
        let auth = BASE64.encode(format!("{}:{}", self.user, self.password));
        serde_json::json!({ "auths": { (host()): {
            "username": self.user, "password": self.password, "auth": auth,
        } } })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/registry.json");
        let made = Identity::at(&file).unwrap();
        assert_eq!(Identity::at(&file).unwrap(), made);
    }

    #[test]
    fn user_and_password_are_in_htpasswd_as_a_hash_and_in_the_docker_config() {
        let identity = Identity::make().unwrap();
        let file = identity.htpasswd().unwrap();
        let (user, hash) = file.trim_end().split_once(':').unwrap();
        assert_eq!(user, identity.user);
        assert!(bcrypt::verify(&identity.password, hash).unwrap());
        assert!(!bcrypt::verify("other", hash).unwrap());
        let config: serde_json::Value = serde_json::from_str(&identity.docker_config()).unwrap();
        let auth = config["auths"][host()]["auth"].as_str().unwrap();
        let decoded = String::from_utf8(BASE64.decode(auth).unwrap()).unwrap();
        assert_eq!(decoded, format!("{}:{}", identity.user, identity.password));
    }
}
