//! The three files as they are now.
//!
//! Invariant: bounded in size, and only regular files are opened (a FIFO would hold the reader for ever). Three files that
//! are read one after the other may stem from two versions of a Secret; that is for the caller to find out.

use std::fs::{File, metadata};
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::error::{CertificateError, CertificateFile};
use super::{CertificateOptions, FILE_BYTES};

/// What the files hold. Not `Debug`: one is a private key.
pub(super) struct Files {
    pub(super) authorities: Result<Vec<u8>, CertificateError>,
    pub(super) certificate: Result<Vec<u8>, CertificateError>,
    pub(super) key: Result<Vec<u8>, CertificateError>,
}

/// Stands for the content of files, so that no second copy of a key is kept.
pub(super) type Fingerprint = [u8; 32];

impl Files {
    pub(super) fn read(options: &CertificateOptions) -> Self {
        let CertificateOptions {
            authorities,
            certificate,
            key,
            ..
        } = options;
        Self {
            authorities: read(CertificateFile::Authorities, authorities),
            certificate: read(CertificateFile::Certificate, certificate),
            key: read(CertificateFile::Key, key),
        }
    }

    /// Of certificate and key; `None` where one could not be read.
    pub(super) fn pair(&self) -> Option<Fingerprint> {
        fingerprint([&self.certificate, &self.key])
    }

    /// Of all three.
    pub(super) fn all(&self) -> Option<Fingerprint> {
        fingerprint([&self.certificate, &self.key, &self.authorities])
    }
}

fn fingerprint<const N: usize>(
    contents: [&Result<Vec<u8>, CertificateError>; N],
) -> Option<Fingerprint> {
    let mut hash = Sha256::new();
    for content in contents {
        let content = content.as_ref().ok()?;
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    Some(hash.finalize().into())
}

fn read(file: CertificateFile, path: &Path) -> Result<Vec<u8>, CertificateError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => CertificateError::Missing(file),
        _ => CertificateError::Unreadable { file, source },
    };
    if !metadata(path).map_err(failed)?.is_file() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        return Err(CertificateError::Unreadable { file, source });
    }
    let mut content = Vec::new();
    let limit = FILE_BYTES as u64 + 1;
    let opened = File::open(path).map_err(failed)?;
    opened
        .take(limit)
        .read_to_end(&mut content)
        .map_err(failed)?;
    if content.len() > FILE_BYTES {
        return Err(CertificateError::TooLarge(file));
    }
    Ok(content)
}
