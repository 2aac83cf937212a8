//! The image that only the private registry has: the probe's program under another identity.
//!
//! Invariant: its id is not the probe's. A kubelet remembers by id that an image was pulled with credentials, and from
//! then on refuses it to Pods without them, even where it was loaded by hand.

use std::io::Read as _;

use anyhow::Context as _;
use serde_json::json;

use clusters::images::ImageTar;
use clusters::workspace;

pub(super) fn image(probe: &ImageTar) -> anyhow::Result<ImageTar> {
    let layers = probe.contents()?.layers;
    let layer = layers.first().context("the probe has a layer")?;
    let mut archive = tar::Archive::new(layer.as_slice());
    let mut program = Vec::new();
    let mut file = archive
        .entries()?
        .next()
        .context("the layer has a file")??;
    file.read_to_end(&mut program)?;
    let settings = json!({
        "User": "65532:65532", "Entrypoint": ["/probe"], "Env": ["PATH=/"], "StopSignal": "SIGKILL",
        "Labels": { "from": "the private registry" },
    });
    let path = workspace::state().join("images/private-probe.tar");
    Ok(ImageTar::write(
        &path,
        "localhost/private-probe:1",
        ("probe", &program),
        &settings,
    )?)
}
