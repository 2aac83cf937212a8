//! Reads the pull Secret: a manifest, or the plain docker config.
//!
//! Invariant: no error and no message contains any content, not even in the message of a parser.

use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::admission::PullSecret;
use policy::image::Keyring;

use super::PreviewError;
use super::document::{self, Located};
use super::error::SecretProblem;
use super::input::Input;

/// Returns the registries for which the Secret has credentials, and its name, if it has one. The credentials are dropped.
pub(super) fn read(input: &Input) -> Result<(PullSecret, Option<String>), PreviewError> {
    let documents = document::documents(input).map_err(without_content)?;
    let secret = document::find(&documents, "Secret", &Some);
    let (content, line) = match secret {
        Some(secret) => (docker_config(secret, input)?, secret.line()),
        None if documents.iter().any(|it| it.get("auths").is_some()) => {
            (input.text().as_bytes().to_vec(), None)
        }
        None => {
            return Err(PreviewError::NoSecret {
                file: input.name().to_owned(),
            });
        }
    };
    let keyring = Keyring::parse(&content).map_err(|source| PreviewError::Keyring {
        place: input.at(line),
        source,
    })?;
    let name = secret.and_then(|it| it.at("metadata.name")?.text());
    Ok((PullSecret::Known(keyring), name.map(str::to_owned)))
}

/// Returns the value of the required key. `stringData` has priority over `data`, as in the API server.
fn docker_config(secret: &Located, input: &Input) -> Result<Vec<u8>, PreviewError> {
    let wrong = |at: Option<&Located>, problem| PreviewError::Secret {
        place: input.at(at.and_then(Located::line).or(secret.line())),
        problem,
    };
    let kind = secret.get("type");
    if kind.and_then(Located::text) != Some(DOCKER_CONFIG_TYPE) {
        return Err(wrong(kind, SecretProblem::Type));
    }
    let value = |map| secret.get(map).and_then(|it| it.get(DOCKER_CONFIG_KEY));
    if let Some(text) = value("stringData").and_then(Located::text) {
        return Ok(text.as_bytes().to_vec());
    }
    let encoded = value("data");
    let text = encoded
        .and_then(Located::text)
        .ok_or_else(|| wrong(encoded, SecretProblem::NoKey))?;
    // The decoder of Go ignores line breaks, which the block style of YAML contains.
    let text = text.replace(['\r', '\n'], "");
    STANDARD
        .decode(text)
        .map_err(|_| wrong(encoded, SecretProblem::Base64))
}

fn without_content(error: PreviewError) -> PreviewError {
    match error {
        PreviewError::Yaml { place, .. } | PreviewError::Json { place, .. } => {
            PreviewError::SecretText(place)
        }
        other => other,
    }
}
