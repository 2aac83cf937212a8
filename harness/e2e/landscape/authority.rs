//! Certificate authorities that a landscape wants to have made.
//!
//! They are made once a machine and then read again, so that a kept cluster's bundle does not change from run to run.
//! Their keys are not kept: nothing is ever signed.

use std::path::Path;

use super::{Authority, Trust};
use clusters::evidence::slug;
use clusters::workspace;
use testkit::pki;

impl Trust {
    /// The certificates of all authorities, PEM.
    ///
    /// # Errors
    /// When one can be neither read nor made.
    pub fn pem(&self) -> anyhow::Result<String> {
        self.pem_at(&workspace::state().join("authorities"))
    }

    fn pem_at(&self, folder: &Path) -> anyhow::Result<String> {
        let mut text = String::new();
        for authority in &self.authorities {
            match authority {
                Authority::Pem(pem) => text.push_str(pem),
                Authority::Generate(name) => text.push_str(&get_or_create(folder, name)?),
            }
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        Ok(text)
    }
}

fn get_or_create(folder: &Path, name: &str) -> anyhow::Result<String> {
    let file = folder.join(format!("{}.pem", slug(name)));
    workspace::get_or_create(&file, || Ok(pki::Authority::new(name)?.pem().to_owned()))
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
