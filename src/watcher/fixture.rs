//! Test fixtures: the three files of a watcher, as a mounted Secret, and, in `kcp`, a KCP of configurable behavior.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::pki::{Authority, Leaf};
use tokio::net::TcpSocket;

pub(crate) use self::kcp::{Kcp, Received, Reply, ServerTls};
use crate::certificates::{CertificateOptions, Certificates};

mod kcp;

/// Common name of certificates: the ID of the runtime.
pub(crate) const RUNTIME: &str = "0b7c9a6e-runtime-1";

/// Returns a CA, and a Secret with a certificate of this CA.
pub(crate) fn certified() -> (Authority, Secret) {
    let authority = Authority::new("one").unwrap();
    let secret = Secret::of(&authority, &authority.leaf(RUNTIME).unwrap());
    (authority, secret)
}

/// Returns a port of this machine that refuses connections until the socket is dropped.
pub(crate) fn closed_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    socket
}

/// The three files as in a mounted Secret: links into a directory that is replaced atomically.
pub(crate) struct Secret {
    folder: TempDir,
    version: u32,
}

impl Secret {
    pub(crate) fn new(authorities: &str, certificate: &str, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut secret = Self { folder, version: 0 };
        secret.swap(authorities, certificate, key);
        for name in NAMES {
            std::os::unix::fs::symlink(
                Path::new("..data").join(name),
                secret.folder.path().join(name),
            )
            .unwrap();
        }
        secret
    }

    pub(crate) fn of(authority: &Authority, leaf: &Leaf) -> Self {
        Self::new(authority.pem(), &leaf.pem, &leaf.key_pem())
    }

    /// Replaces the certificate and the CA bundle.
    pub(crate) fn renew(&mut self, authorities: &str, leaf: &Leaf) {
        self.swap(authorities, &leaf.pem, &leaf.key_pem());
    }

    /// Replaces the files as the kubelet does: creates a new directory and a new link, and renames the link.
    pub(crate) fn swap(&mut self, authorities: &str, certificate: &str, key: &str) {
        let folder = self.folder.path();
        self.version += 1;
        let version = format!("..version{}", self.version);
        fs::create_dir(folder.join(&version)).unwrap();
        for (name, content) in NAMES.into_iter().zip([authorities, certificate, key]) {
            fs::write(folder.join(&version).join(name), content).unwrap();
        }
        std::os::unix::fs::symlink(&version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn options(&self) -> CertificateOptions {
        let [authorities, certificate, key] = NAMES.map(|name| self.path(name));
        CertificateOptions {
            authorities,
            certificate,
            key,
        }
    }

    pub(crate) fn load(&self) -> Certificates {
        Certificates::load(self.options())
    }
}

pub(crate) const NAMES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];
