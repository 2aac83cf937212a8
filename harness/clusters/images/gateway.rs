//! The gateway's image: Envoy and the C library of this machine that it was linked against, nothing else.
//!
//! Invariant: built from the one program of [`setup::envoy`](crate::setup), once; its name changes with the program and
//! with the libraries. No shell: what one wants to know of it, it tells on its admin port.

use std::path::Path;

use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use super::{ImageError, ImageTar, folder};
use crate::progress::Progress;
use crate::setup::envoy;

/// The image, built if the folder of images lacks it.
///
/// # Errors
/// When Envoy cannot be had, or the image cannot be written.
pub async fn gateway(progress: &Progress) -> Result<ImageTar, ImageError> {
    let program = envoy::ensure(progress).await;
    let program = program.map_err(|error| ImageError::Setup(Box::new(error)))?;
    let libraries = libraries(&program).await?;
    let mut hash = Sha256::new();
    for (_, bytes) in &libraries {
        hash.update(bytes);
    }
    let mut tag = format!("{}-{:x}", envoy::VERSION, hash.finalize());
    tag.truncate(envoy::VERSION.len() + 13);
    let archive = folder().join(format!("gateway-{tag}.tar"));
    if let Ok(image) = ImageTar::open(&archive) {
        return Ok(image);
    }
    let bytes = std::fs::read(&program).map_err(ImageError::file(&program))?;
    let settings = serde_json::json!({
        "User": "65532:65532", "Entrypoint": ["/envoy"], "Env": ["PATH=/"],
    });
    let files = libraries
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let files = files.chain([("envoy", bytes.as_slice())]);
    let partial = archive.with_extension("partial");
    let reference = format!("localhost/gateway:{tag}");
    ImageTar::write_files(&partial, &reference, files, &settings)?;
    std::fs::rename(&partial, &archive).map_err(ImageError::file(&archive))?;
    ImageTar::open(&archive)
}

/// What the program is linked against, by the paths where the dynamic linker looks, which is one of them.
async fn libraries(program: &Path) -> Result<Vec<(String, Vec<u8>)>, ImageError> {
    let listed = Command::new("ldd").arg(program).output().await;
    let listed = listed.map_err(ImageError::file("ldd"))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    paths(&text)
        .map(|path| {
            let bytes = std::fs::read(path).map_err(ImageError::file(path))?;
            Ok((path.trim_start_matches('/').to_owned(), bytes))
        })
        .collect()
}

/// The paths in what `ldd` says: `name => path (address)`, and `path (address)` of the linker itself.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

#[cfg(test)]
mod tests {
    #[test]
    fn libraries_are_where_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007f5f)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x00007f5f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f5f)\n";
        let paths: Vec<&str> = super::paths(text).collect();
        assert_eq!(paths, ["/lib/x/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
