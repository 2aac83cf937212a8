use std::os::unix::fs::symlink;

use testkit::apiserver::ApiServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::certificate::CertificateMetrics;
use crate::certificate::fixtures::{epoch, material};

fn write(directory: &Path, material: &Material) {
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("tls.crt"), &material.chain).unwrap();
    std::fs::write(directory.join("tls.key"), &material.key).unwrap();
    std::fs::write(directory.join("ca.crt"), &material.authorities).unwrap();
}

fn watch_files(directory: &Path) -> (watch::Receiver<Observed<StoredCertificate>>, JoinHandle<()>) {
    let client = ApiServer::new().client();
    let metrics = CertificateMetrics::default();
    let directory = directory.to_owned();
    let files = Some(directory.clone());
    let certificates = Certificates::new(client, "kyma-system", "any", files, metrics);
    let seen = certificates.certificate.subscribe();
    let watch = async move { certificates.watch_files(&directory).await };
    (seen, tokio::spawn(watch))
}

async fn changed(cell: &mut watch::Receiver<Observed<StoredCertificate>>) -> Option<Material> {
    cell.changed().await.unwrap();
    match cell.borrow_and_update().clone() {
        Observed::Unknown => panic!("unknown again"),
        Observed::Absent => None,
        Observed::Present(stored) => Some(stored.material.clone()),
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
    let (mut seen, watching) = watch_files(volume.path());
    assert!(changed(&mut seen).await == Some(old));

    let start = Instant::now();
    symlink("..2", path("..next")).unwrap();
    std::fs::rename(path("..next"), path("..data")).unwrap();
    assert!(changed(&mut seen).await == Some(new.clone()));
    assert!(start.elapsed() <= INTERVAL + Duration::from_secs(1));

    // Without CAs the pair is still served; without its key it is not available.
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
async fn unchanged_files_are_not_reported() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &material(epoch()));
    let (mut seen, watching) = watch_files(directory.path());
    changed(&mut seen).await;
    let quiet = tokio::time::timeout(INTERVAL * 5, seen.changed()).await;
    assert!(quiet.is_err());
    watching.abort();
}
