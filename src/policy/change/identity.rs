//! The object of an event.
//!
//! The fields of the object have priority over the fields of the request. An event without a name or a kind is never created.

use partial_json::Text;
use watcher_types::{BODY_BYTES, Gvk, NamespacedName, WatchEvent};

use super::object::Object;
use super::review::Request;
use super::skip_reason::{Side, SkipReason};

/// Maximum length of an identity, in bytes. Even if each byte is escaped (with six bytes), the event does not exceed
/// the maximum body of a listener.
const LONGEST: usize = BODY_BYTES / 8;

/// Returns the name and namespace of the object.
pub(super) fn watched(
    request: &Request<'_>,
    side: Side,
    object: &Object<'_>,
) -> Result<NamespacedName, SkipReason> {
    let (name, namespace) = match object.present("metadata") {
        None => <(Text<'_>, Text<'_>)>::default(),
        Some(metadata) => {
            let metadata = Object::open(metadata).ok_or(SkipReason::InvalidObject {
                side,
                part: ".metadata",
            })?;
            (
                read(&metadata, "name", side, ".metadata.name")?,
                read(&metadata, "namespace", side, ".metadata.namespace")?,
            )
        }
    };
    let watched = NamespacedName {
        namespace: first(&namespace, request.namespace()),
        name: first(&name, request.name()),
    };
    if watched.name.is_empty() {
        return Err(SkipReason::NameMissing { side });
    }
    Ok(watched)
}

/// Returns group, version and kind of the object.
pub(super) fn gvk(
    request: &Request<'_>,
    side: Side,
    object: &Object<'_>,
) -> Result<Gvk, SkipReason> {
    let api_version = read(object, "apiVersion", side, ".apiVersion")?;
    let kind = read(object, "kind", side, ".kind")?;
    let own = split(&api_version).filter(|_| !kind.is_empty());
    let gvk = match own {
        Some((group, version)) => Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: (*kind).to_owned(),
        },
        None => request.gvk(),
    };
    if gvk.version.is_empty() || gvk.kind.is_empty() {
        return Err(SkipReason::KindMissing { side });
    }
    Ok(gvk)
}

/// Returns an error for an identity that no listener accepts, and that no API server has stored.
pub(super) fn bounded(event: &WatchEvent) -> Result<(), SkipReason> {
    let NamespacedName { namespace, name } = &event.watched;
    let Gvk {
        group,
        version,
        kind,
    } = &event.watched_gvk;
    let texts = [namespace, name, group, version, kind];
    let bytes = texts.map(String::len).iter().sum();
    if bytes > LONGEST {
        return Err(SkipReason::NameTooLong { bytes });
    }
    Ok(())
}

/// Splits an `apiVersion`: `apps/v1` → (`apps`, `v1`), `v1` → (``, `v1`). `None` if the text is not an `apiVersion`.
fn split(api_version: &str) -> Option<(&str, &str)> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (!version.is_empty() && !version.contains('/')).then_some((group, version))
}

fn read<'a>(
    object: &Object<'a>,
    key: &str,
    side: Side,
    part: &'static str,
) -> Result<Text<'a>, SkipReason> {
    let text = object.text(key);
    text.ok_or(SkipReason::InvalidObject { side, part })
}

fn first(own: &str, asked: &str) -> String {
    if own.is_empty() { asked } else { own }.to_owned()
}
