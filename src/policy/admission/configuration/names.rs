//! Rules of the API server for names, so that no configuration makes it reject a Pod.

use api::config::ClusterTrustBundle;
use api::syntax::{is_label, is_subdomain};

use super::super::entry::Entry;
use super::super::mounts::clean;
use super::{TrustBundle, UnusableTrustBundle};

/// Returns whether a name is valid for an environment variable: printable ASCII except `=`.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

/// Returns whether a name is valid for a ClusterTrustBundle: `name` or `signer.domain:path:name`, where colons
/// separate the segments.
fn is_bundle_name(name: &str) -> bool {
    name.len() <= 253 && name.split(':').all(is_subdomain)
}

/// Returns whether a path is a file inside a volume: relative, without `..`, and without the prefix that the kubelet reserves.
fn is_relative_file(path: &str) -> bool {
    !path.starts_with('/')
        && !path.starts_with("..")
        && path.split('/').all(|part| !part.is_empty() && part != "..")
}

/// Returns whether a path is absolute and valid in a container. A colon would separate mount options.
fn is_mount_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains(':') && clean(path) != "/"
}

/// Returns the bundle if it can be mounted, otherwise the key of the invalid value.
pub(super) fn trust_bundle(
    written: &ClusterTrustBundle,
) -> Result<TrustBundle, UnusableTrustBundle> {
    let ClusterTrustBundle {
        name,
        cert_write_path,
        volume_mount_path,
        volume_name,
    } = written;
    for (key, valid) in [
        ("name", is_bundle_name(name)),
        ("certWritePath", is_relative_file(cert_write_path)),
        ("volumeMountPath", is_mount_path(volume_mount_path)),
        ("volumeName", is_label(volume_name)),
    ] {
        if !valid {
            return Err(UnusableTrustBundle(key));
        }
    }
    let mount_path = clean(volume_mount_path).into_owned();
    Ok(TrustBundle {
        mount_entry: Entry::mount(volume_name, &mount_path),
        volume_entry: Entry::volume(volume_name, name, cert_write_path),
        name: name.clone(),
        file: cert_write_path.clone(),
        mount_path,
        volume: volume_name.clone(),
    })
}
