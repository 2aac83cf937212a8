//! In which version an API server serves a kind, if at all.

use kube::Client;

/// The first of the versions in which the group has the plural; `None` when it has it in none.
///
/// # Errors
/// When the API server does not tell: that is no answer, and nothing may be concluded from it.
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
