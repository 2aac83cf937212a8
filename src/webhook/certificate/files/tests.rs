use std::os::unix::fs::symlink;
use std::path::Path;

use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::certificate::testing::{epoch, material};

fn write(directory: &Path, material: &Material) {
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("tls.crt"), &material.chain).unwrap();
    std::fs::write(directory.join("tls.key"), &material.key).unwrap();
    std::fs::write(directory.join("ca.crt"), &material.authorities).unwrap();
}

async fn changed(cell: &mut watch::Receiver<Sighting<Material>>) -> Option<Material> {
    cell.changed().await.unwrap();
    match cell.borrow_and_update().clone() {
        Sighting::Unknown => panic!("unknown again"),
        Sighting::Absent => None,
        Sighting::Present(material) => Some(Material::clone(&material)),
    }
}

#[tokio::test(start_paused = true)]
async fn a_mounted_secret_is_followed_through_its_swap_of_links() {
    let volume = tempfile::tempdir().unwrap();
    let path = |name: &str| volume.path().join(name);
    let (old, new) = (material(epoch()), material(epoch()));
    write(&path("..1"), &old);
    write(&path("..2"), &new);
    symlink("..1", path("..data")).unwrap();
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        symlink(format!("..data/{name}"), path(name)).unwrap();
    }
    let cell = Cell::default();
    let mut seen = cell.subscribe();
    let files = CertificateFiles::in_directory(volume.path());
    let watching = tokio::spawn(watch_files(files, cell));
    assert!(changed(&mut seen).await == Some(old));

    let start = Instant::now();
    symlink("..2", path("..next")).unwrap();
    std::fs::rename(path("..next"), path("..data")).unwrap();
    assert!(changed(&mut seen).await == Some(new.clone()));
    assert!(start.elapsed() <= EVERY + Duration::from_secs(1));

    // Without CAs the pair still serves; without its key it is gone.
    std::fs::remove_file(path("..2/ca.crt")).unwrap();
    assert!(
        changed(&mut seen).await
            == Some(Material {
                authorities: Vec::new(),
                ..new
            })
    );
    std::fs::remove_file(path("..2/tls.key")).unwrap();
    assert!(changed(&mut seen).await.is_none());
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn what_did_not_change_is_not_told() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &material(epoch()));
    let cell = Cell::default();
    let mut seen = cell.subscribe();
    let files = CertificateFiles::in_directory(directory.path());
    let watching = tokio::spawn(watch_files(files, cell));
    changed(&mut seen).await;
    let quiet = tokio::time::timeout(EVERY * 5, seen.changed()).await;
    assert!(quiet.is_err());
    watching.abort();
}

#[tokio::test]
async fn names_can_be_others() {
    let directory = tempfile::tempdir().unwrap();
    let expected = material(epoch());
    write(directory.path(), &expected);
    let rename = |from, to| std::fs::rename(directory.path().join(from), directory.path().join(to));
    rename("tls.crt", "server.pem").unwrap();
    rename("tls.key", "server.key").unwrap();
    let files = CertificateFiles {
        certificate: "server.pem".to_owned(),
        key: "server.key".to_owned(),
        ..CertificateFiles::in_directory(directory.path())
    };
    assert!(files.read().await.unwrap() == expected);
}
