//! Certificate authorities that a landscape wants to have made.
//!
//! Invariant: made once a machine and then read again, so that a kept cluster's bundle does not change from run to
//! run. The keys are thrown away: nothing is ever signed.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};

use super::{Authority, LandscapeError, Trust};
use clusters::evidence::slug;
use clusters::workspace;

impl Trust {
    /// The certificates of all authorities, PEM.
    ///
    /// # Errors
    /// When one can be neither read nor made.
    pub fn pem(&self) -> Result<String, LandscapeError> {
        self.pem_at(&workspace::state().join("authorities"))
    }

    fn pem_at(&self, folder: &Path) -> Result<String, LandscapeError> {
        let mut text = String::new();
        for authority in &self.authorities {
            match authority {
                Authority::Pem(pem) => text.push_str(pem),
                Authority::Generate(name) => text.push_str(&load_or_make(folder, name)?),
            }
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        Ok(text)
    }
}

fn load_or_make(folder: &Path, name: &str) -> Result<String, LandscapeError> {
    let file = folder.join(format!("{}.pem", slug(name)));
    if let Ok(pem) = std::fs::read_to_string(&file) {
        return Ok(pem);
    }
    let pem = make(name).map_err(|error| LandscapeError::Authority {
        name: name.to_owned(),
        reason: error.to_string(),
    })?;
    // Whole or not at all: two runs may make one at the same time.
    let partial = file.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&partial, &pem))
        .and_then(|()| std::fs::rename(&partial, &file))
        .map_err(LandscapeError::file(&file))?;
    Ok(pem)
}

fn make(name: &str) -> Result<String, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, name);
    Ok(authority.self_signed(&KeyPair::generate()?)?.pem())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_made_once_and_pem_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let trust = Trust {
            name: "x".to_owned(),
            signer: None,
            authorities: vec![
                Authority::Generate("Root R1".to_owned()),
                Authority::Pem("as it is".to_owned()),
            ],
        };
        let pem = trust.pem_at(folder.path()).unwrap();
        assert_eq!(trust.pem_at(folder.path()).unwrap(), pem);
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
        assert!(
            pem.ends_with("-----END CERTIFICATE-----\nas it is\n"),
            "{pem}"
        );
    }
}
