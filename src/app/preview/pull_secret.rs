//! Reads the pull Secret: a manifest, or the plain docker config.
//!
//! Invariant: no error and no message contains any content, not even in the message of a parser.

use anyhow::Context as _;
use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::admission::PullSecret;
use policy::image::Keyring;

use super::document::{self, Located};
use super::input::Input;

/// Returns the registries for which the Secret has credentials, and its name, if it has one. The credentials are dropped.
pub(super) fn read(input: &Input) -> anyhow::Result<(PullSecret, Option<String>)> {
    let documents = document::documents(input)
        .map_err(|error| anyhow::anyhow!("{}: not valid YAML or JSON", error.place))?;
    let secret = document::find(&documents, "Secret", &Some);
    let (content, line) = match secret {
        Some(secret) => (docker_config(secret, input)?, secret.line()),
        None if documents.iter().any(|it| it.get("auths").is_some()) => {
            (input.text().as_bytes().to_vec(), None)
        }
        None => anyhow::bail!(
            "{}: expected a Secret, or a docker config with the key auths",
            input.name()
        ),
    };
    let keyring = Keyring::parse(&content)
        .with_context(|| format!("{}: Secret: not a valid docker config", input.at(line)))?;
    let name = secret.and_then(|it| it.at("metadata.name")?.text());
    Ok((PullSecret::Known(keyring), name.map(str::to_owned)))
}

/// Returns the value of the required key. `stringData` has priority over `data`, as in the API server.
fn docker_config(secret: &Located, input: &Input) -> anyhow::Result<Vec<u8>> {
    let wrong = |at: Option<&Located>, problem: String| {
        let place = input.at(at.and_then(Located::line).or(secret.line()));
        anyhow::anyhow!("{place}: Secret: {problem}")
    };
    let kind = secret.get("type");
    if kind.and_then(Located::text) != Some(DOCKER_CONFIG_TYPE) {
        return Err(wrong(kind, format!("type: expected {DOCKER_CONFIG_TYPE}")));
    }
    let value = |map| secret.get(map).and_then(|it| it.get(DOCKER_CONFIG_KEY));
    if let Some(text) = value("stringData").and_then(Located::text) {
        return Ok(text.as_bytes().to_vec());
    }
    let encoded = value("data");
    let text = encoded.and_then(Located::text);
    let text =
        text.ok_or_else(|| wrong(encoded, format!("data[{DOCKER_CONFIG_KEY:?}]: required")))?;
    // The decoder of Go ignores line breaks, which the block style of YAML contains.
    let text = text.replace(['\r', '\n'], "");
    STANDARD
        .decode(text)
        .map_err(|_| wrong(encoded, format!("data[{DOCKER_CONFIG_KEY:?}]: not base64")))
}
