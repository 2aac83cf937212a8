//! What can be wrong with the watcher's certificate files.
//!
//! Invariant: each fault has a name of its own and says which file it is about by the variable that names the file;
//! nothing of a file's content is in an error. Deliberately absent: what is done about it (see [`super::Certificates`]).

use std::fmt;
use std::io;

use super::FILE_BYTES;

/// One of the three files, by the environment variable that says where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFile {
    /// `CA_CERT`: whom to believe to be KCP.
    Authorities,
    /// `TLS_CERT`: the watcher's certificate, as server and as client.
    Certificate,
    /// `TLS_KEY`: its key.
    Key,
}

/// Why the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Nobody has looked at the files so far.
    #[error("certificate files not read yet")]
    Unread,
    /// There is no such file.
    #[error("file of {0} not found")]
    Missing(CertificateFile),
    /// It cannot be read, or is no file.
    #[error("failed to read the file of {file}")]
    Unreadable {
        /// Which.
        file: CertificateFile,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// More than [`FILE_BYTES`].
    #[error("file of {0} exceeds {FILE_BYTES} bytes")]
    TooLarge(CertificateFile),
    /// A section begins and does not end, or is no base64.
    #[error("file of {0}: incomplete, or not PEM")]
    HalfWritten(CertificateFile),
    /// There is no certificate in it.
    #[error("file of {0}: no certificate")]
    NoCertificate(CertificateFile),
    /// There is no key in the file of `TLS_KEY`, or one in a format that is none of PKCS#8, PKCS#1 and SEC1.
    #[error("file of TLS_KEY: no private key")]
    NoKey,
    /// What stands in it as a certificate is none.
    #[error("file of {0}: certificate is not valid X.509")]
    Malformed(CertificateFile),
    /// The key belongs to another certificate.
    #[error("key of TLS_KEY does not match the certificate of TLS_CERT")]
    Mismatched,
    /// Its time is over; of a bundle: the time of each certificate in it.
    #[error("certificate of {0} has expired")]
    Expired(CertificateFile),
    /// Its time is to come.
    #[error("certificate of {0} is not valid yet")]
    NotYetValid(CertificateFile),
    /// The TLS library does not take it.
    #[error("certificates rejected by the TLS library")]
    Refused(#[source] rustls::Error),
}

impl fmt::Display for CertificateFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Authorities => "CA_CERT",
            Self::Certificate => "TLS_CERT",
            Self::Key => "TLS_KEY",
        })
    }
}
