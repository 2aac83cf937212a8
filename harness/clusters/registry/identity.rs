//! Who the registry is: authority, certificate, user and password.
//!
//! Invariant: made once and then read again, so that what trusts it today trusts it tomorrow. Nothing of it is of
//! use outside this machine: the name does not exist elsewhere.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde::{Deserialize, Serialize};

use super::{NAME, RegistryError, host};
use crate::workspace;

/// What the registry shows, and what one shows to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The authority's certificate.
    pub ca_pem: String,
    /// The registry's own certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
    /// Who may pull and push.
    pub user: String,
    /// How that is shown.
    pub password: String,
}

impl Identity {
    /// The one that was made first on this machine.
    ///
    /// # Errors
    /// When none can be made or kept.
    pub fn load_or_make() -> Result<Self, RegistryError> {
        Self::at(&workspace::state().join("registry.json"))
    }

    fn at(file: &Path) -> Result<Self, RegistryError> {
        let kept = std::fs::read(file)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let made = Self::make()?;
        keep(file, &made).map_err(|error| failed(&error))?;
        Ok(made)
    }

    fn make() -> Result<Self, RegistryError> {
        let rcgen = |error: rcgen::Error| failed(&error);
        let mut ca = CertificateParams::new(Vec::new()).map_err(rcgen)?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.distinguished_name
            .push(DnType::CommonName, "registry authority of the harness");
        let ca_key = KeyPair::generate().map_err(rcgen)?;
        let ca_pem = ca.self_signed(&ca_key).map_err(rcgen)?.pem();

        let key = KeyPair::generate().map_err(rcgen)?;
        let mut leaf = CertificateParams::new([NAME.to_owned()]).map_err(rcgen)?;
        leaf.distinguished_name.push(DnType::CommonName, NAME);
        let certificate_pem = leaf
            .signed_by(&key, &Issuer::new(ca, ca_key))
            .map_err(rcgen)?
            .pem();

        let user = "landscape".to_owned();
        // A fresh key's digest is a password that nobody knows and that needs no further source of chance.
        let mut password = crate::images::digest(key.serialized_der()).replace("sha256:", "");
        password.truncate(24);
        Ok(Self {
            ca_pem,
            certificate_pem,
            key_pem: key.serialize_pem(),
            user,
            password,
        })
    }

    /// The file by which the registry knows user and password: the format of `htpasswd -B`.
    ///
    /// # Errors
    /// When the password cannot be hashed.
    pub(super) fn htpasswd(&self) -> Result<String, RegistryError> {
        // The least cost: every request is checked.
        let hash = bcrypt::hash(&self.password, 4).map_err(|error| failed(&error))?;
        Ok(format!("{}:{hash}\n", self.user))
    }

    /// The content of a Secret of type `kubernetes.io/dockerconfigjson` that opens the registry.
    #[must_use]
    pub fn docker_config(&self) -> String {
        let auth = BASE64.encode(format!("{}:{}", self.user, self.password));
        serde_json::json!({ "auths": { (host()): {
            "username": self.user, "password": self.password, "auth": auth,
        } } })
        .to_string()
    }
}

fn keep(file: &Path, identity: &Identity) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Whole or not at all: two runs may make one at the same time.
    let partial: PathBuf = file.with_extension(std::process::id().to_string());
    std::fs::write(&partial, serde_json::to_vec_pretty(identity)?)?;
    std::fs::rename(partial, file)
}

fn failed(error: &dyn std::fmt::Display) -> RegistryError {
    RegistryError::Identity {
        reason: error.to_string(),
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
    fn htpasswd_has_the_password_hashed_with_bcrypt() {
        let identity = Identity::make().unwrap();
        let file = identity.htpasswd().unwrap();
        let (user, hash) = file.trim_end().split_once(':').unwrap();
        assert_eq!(user, identity.user);
        assert!(bcrypt::verify(&identity.password, hash).unwrap());
        assert!(!bcrypt::verify("other", hash).unwrap());
    }

    #[test]
    fn the_docker_config_carries_user_and_password() {
        let identity = Identity::make().unwrap();
        let config: serde_json::Value = serde_json::from_str(&identity.docker_config()).unwrap();
        let auth = config["auths"][host()]["auth"].as_str().unwrap();
        let decoded = String::from_utf8(BASE64.decode(auth).unwrap()).unwrap();
        assert_eq!(decoded, format!("{}:{}", identity.user, identity.password));
    }
}
