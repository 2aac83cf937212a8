//! Finds the version in which an API server serves a kind.

use kube::Client;

/// Returns the first of the versions in which the group contains the plural; `None` if no version contains it.
///
/// # Errors
/// The API server did not respond. It is unknown whether the kind is served.
pub(crate) async fn served(
    client: &Client,
    group: &str,
    versions: &[&'static str],
    plural: &str,
) -> Result<Option<&'static str>, kube::Error> {
    for version in versions {
        match client
            .list_api_group_resources(&format!("{group}/{version}"))
            .await
        {
            Ok(list) if list.resources.iter().any(|it| it.name == plural) => {
                return Ok(Some(version));
            }
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
