//! For tests: the three files of a watcher, as a Secret mounts them, and, in `kcp`, a KCP of any behaviour.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::pki::{Authority, Leaf};
use tokio::net::TcpSocket;

pub(crate) use self::kcp::{Kcp, Received, Reply, ServerTls};
use crate::certificates::{CertificateOptions, Certificates};

mod kcp;

/// The common name of certificates: the ID of the runtime.
pub(crate) const RUNTIME: &str = "0b7c9a6e-runtime-1";

/// An authority, and a watcher's certificate of it in the three files.
pub(crate) fn certified() -> (Authority, Secret) {
    let authority = Authority::new("one").unwrap();
    let secret = Secret::of(&authority, &authority.leaf(RUNTIME).unwrap());
    (authority, secret)
}

/// A port of this machine that refuses connections for as long as the socket lives.
pub(crate) fn closed_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    socket
}

/// The three files, as a mounted Secret shows them: links into a folder that is swapped as a whole.
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

    /// Another certificate and another bundle of CA certificates take the place of the current ones.
    pub(crate) fn renew(&mut self, authorities: &str, leaf: &Leaf) {
        self.swap(authorities, &leaf.pem, &leaf.key_pem());
    }

    /// As the kubelet does it: a new folder, a new link to it, renamed over the old link.
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
