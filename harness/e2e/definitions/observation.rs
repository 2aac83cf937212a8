//! Checks of objects of any kind: their fields, their existence, their conditions, and Events about them.

use anyhow::anyhow;
use testkit::until::until;

use super::PATIENCE;
use super::object::{ensure_written, named, read, strip_server_fields};
use super::prelude::*;
use testkit::matching::differences;

/// "is deleted" and "is replaced" (by another object with the same name) wait, and need an earlier step that read the object.
/// "does not exist" checks for a period.
#[given(regex = "^(.+) (exists)$")]
#[then(regex = "^(.+) (exists|does not exist|is deleted|is replaced)$")]
async fn exists(scenario: &mut Scenario, object: ObjectRef, state: String) -> Result {
    let what = format!("{object} {state}");
    if state == "exists" {
        return expect(scenario, &object, |_| Ok(())).await;
    }
    let is_absent = async || check(read(scenario, &object).await?.is_null(), "it exists");
    if state == "does not exist" {
        return consistently(&what, A_WHILE, is_absent).await;
    }
    // Without an earlier object, its absence would prove nothing.
    let before = scenario.earlier(&object)?["metadata"]["uid"].clone();
    if state == "is replaced" {
        return expect(scenario, &object, |seen| {
            check(seen["metadata"]["uid"] != before, &seen["metadata"])
        })
        .await;
    }
    eventually(&what, is_absent).await
}

#[then(expr = "{object} matches:")]
async fn matches(scenario: &mut Scenario, object: ObjectRef, step: &Step) -> Result {
    let expected = document(scenario, step)?;
    expect(scenario, &object, |seen| has_all(&expected, seen)).await
}

/// Fails unless an object has all fields of another.
pub(crate) fn has_all(expected: &Value, seen: &Value) -> Result {
    let found = differences(expected, seen);
    check(found.is_empty(), found.join("; "))
}

#[then(regex = r#"^(.+) has (no )?(annotation|label) "([^"]+)"$"#)]
async fn labelled(
    scenario: &mut Scenario,
    object: ObjectRef,
    no: String,
    field: String,
    entry: String,
) -> Result {
    let (key, value) = pair(&entry);
    let expected = no.is_empty().then(|| Value::from(value));
    expect(scenario, &object, |seen| {
        let found = &seen["metadata"][format!("{field}s")];
        check(found.get(key) == expected.as_ref(), found)
    })
    .await
}

#[then(regex = r"^(.+) is not modified(?: for (\d+) seconds)?$")]
async fn not_modified(scenario: &mut Scenario, object: ObjectRef, seconds: String) -> Result {
    let span = seconds.parse().map_or(A_WHILE, Duration::from_secs);
    let version = &scenario.earlier(&object)?["metadata"]["resourceVersion"];
    consistently(&format!("{object} is not modified"), span, async || {
        let metadata = &existing(scenario, &object).await?["metadata"];
        check(metadata["resourceVersion"] == *version, metadata)
    })
    .await
}

/// Compares with the object before the scenario's last change of it.
#[then(regex = r"^(.+) differs only by field ([\w.]+)$")]
async fn differs(scenario: &mut Scenario, object: ObjectRef, field: String) -> Result {
    let now = existing(scenario, &object).await?;
    let (mut was, mut is) = (content(scenario.earlier(&object)?), content(&now));
    // A field that is absent on one side is different from null on the other side.
    let [old, new] = [&mut was, &mut is].map(|it| {
        let (parent, key) = field.rsplit_once('.').unwrap_or(("", &field));
        let parent = it.pointer_mut(&pointer(parent))?.as_object_mut()?;
        parent.remove(key)
    });
    ensure!(old != new, "{field} is still {new:?}");
    equal(&was, &is)
}

#[then(expr = "{object} is eventually restored")]
async fn restored(scenario: &mut Scenario, object: ObjectRef) -> Result {
    let before = scenario.earlier(&object)?;
    eventually(&format!("{object} is restored"), async || {
        let now = existing(scenario, &object).await?;
        ensure_written(before, &now)?;
        equal(&content(before), &content(&now))
    })
    .await
}

/// Returns an object without the fields that the API server sets.
pub(crate) fn content(object: &Value) -> Value {
    let mut object = object.clone();
    object["status"] = Value::Null;
    strip_server_fields(&mut object);
    object
}

#[then(regex = r"^field ([\w.]+) of (.+) is ([^ ].*)$")]
async fn has_field(scenario: &mut Scenario, field: String, of: ObjectRef, value: String) -> Result {
    let expected = scenario.yaml(&value)?;
    expect(scenario, &of, |seen| {
        let found = seen.pointer(&pointer(&field)).unwrap_or(&Value::Null);
        check(*found == expected, found)
    })
    .await
}

/// Returns the JSON pointer for `a.b`; an empty text is the whole object.
fn pointer(field: &str) -> String {
    let path = format!("/{}", field.replace('.', "/"));
    path.trim_end_matches('/').to_owned()
}

#[then(expr = "field manager {string} owns only field {string} of {object}")]
async fn owner(scenario: &mut Scenario, name: String, field: String, object: ObjectRef) -> Result {
    expect(scenario, &object, |seen| {
        let entries = items(&seen["metadata"]["managedFields"]);
        let own = entries.filter(|it| it["manager"] == name);
        let owned: String = own.map(|it| it["fieldsV1"].to_string()).collect();
        // Counts fields without fields below them; the key `.` is for their parent.
        let leaves = owned.matches(":{}").count() - owned.matches(r#"".":{}"#).count();
        let is_only = leaves == 1 && owned.contains(&format!(r#""f:{field}":{{}}"#));
        check(is_only, owned)
    })
    .await
}

#[then(expr = "{object} has the data of {object}")]
async fn same_data(scenario: &mut Scenario, copy: ObjectRef, source: ObjectRef) -> Result {
    let source = existing(scenario, &source).await?;
    expect(scenario, &copy, |seen| {
        ensure!(
            seen["data"] == source["data"] && seen["type"] == source["type"],
            "type {} and other data",
            seen["type"]
        );
        let deleted = &seen["metadata"]["deletionTimestamp"];
        check(deleted.is_null(), "it is being deleted")
    })
    .await
}

#[then(regex = r#"^(.+) has Event "(\w+)" with message containing "(.+)"$"#)]
async fn event(scenario: &mut Scenario, object: ObjectRef, reason: String, text: String) -> Result {
    let object = scenario.resolved(&object);
    let client = scenario.client_of(&object)?;
    let revision = |object: &Value| -> Option<u64> {
        object["metadata"]["resourceVersion"].as_str()?.parse().ok()
    };
    // An Event of an earlier scenario has an older resource version, or is about another object.
    let since = revision(&scenario.observed.last()?.object);
    let place = object.namespace.as_deref().unwrap_or_default();
    ensure!(
        since.is_some() || scenario.owns(&object.name) || scenario.owns(place),
        "{object} may have Events of earlier scenarios, and the last response has no resource version"
    );
    let namespace = object.namespace.as_deref().unwrap_or("default");
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    eventually(&format!("{object} has Event {reason}"), async || {
        let events = client.get(&path).await?;
        let of_object = items(events.at("/items")).filter(|event| {
            event["regarding"]["kind"] == object.kind
                && event["regarding"]["name"] == object.name
                && event["reason"] == reason
                && revision(event) > since
        });
        let notes: Vec<&str> = of_object.filter_map(|it| it["note"].as_str()).collect();
        let is_there = notes.iter().any(|note| note.contains(&text));
        check(is_there, format!("Events: {notes:?}"))
    })
    .await
}

#[given(
    regex = r#"^([A-Z]\w+ "[^"]+"(?: on runtime "[^"]+")?) has condition (\w+=\w+)(?: with reason "([^"]*)")?(?: and message containing "([^"]*)")?$"#
)]
#[then(
    regex = r#"^([A-Z]\w+ "[^"]+"(?: on runtime "[^"]+")?) has condition (\w+=\w+)(?: with reason "([^"]*)")?(?: and message containing "([^"]*)")?$"#
)]
async fn condition(
    scenario: &mut Scenario,
    object: ObjectRef,
    wanted: String,
    reason: String,
    message: String,
) -> Result {
    let (kind, status) = pair(&wanted);
    expect(scenario, &object, |seen| {
        let found = items(&seen["status"]["conditions"]).find(|it| it["type"] == kind);
        let found = found.context("the condition does not exist")?;
        let text = |key: &str| found[key].as_str().unwrap_or_default();
        let has_reason = reason.is_empty() || text("reason") == reason;
        let is_expected = text("status") == status && text("message").contains(&message);
        // A condition of an earlier generation describes the object before the scenario changed its spec.
        let (observed, generation) = (
            &found["observedGeneration"],
            &seen["metadata"]["generation"],
        );
        let is_current = observed.is_null() || observed == generation;
        check(is_expected && has_reason && is_current, found)
    })
    .await
}

/// The step uses a dry run, so that no object must be deleted if it is accepted.
#[then(expr = "the API server denies {object} with message containing {string}:")]
async fn denied(scenario: &mut Scenario, object: ObjectRef, text: String, step: &Step) -> Result {
    let fields = named(&object, document(scenario, step)?);
    let client = scenario.client_of(&object)?;
    let answer = client.write(Write::DryRun, &fields).await?;
    let (status, message) = (answer.status, answer.message());
    let is_denied = status.is_client_error() && message.contains(&text);
    check(is_denied, format!("{status}: {message}"))
}

/// Waits until the object exists and `is` accepts it. For a dry run, the object is that of the response.
pub(crate) async fn expect(
    scenario: &mut Scenario,
    object: &ObjectRef,
    is: impl Fn(&Value) -> Result<()>,
) -> Result {
    expect_within(scenario, object, PATIENCE, is).await
}

/// Waits as `expect` does, with another time limit.
pub(crate) async fn expect_within(
    scenario: &mut Scenario,
    object: &ObjectRef,
    limit: Duration,
    is: impl Fn(&Value) -> Result<()>,
) -> Result {
    let object = scenario.resolved(object);
    if let Some((answer, Write::DryRun)) = scenario.observed.written.get(&object) {
        return is(&answer.object).map_err(|error| anyhow!("{object}: {error:#}"));
    }
    let seen = until(&format!("{object} is as expected"), limit, || async {
        let seen = existing(scenario, &object).await?;
        is(&seen)?;
        anyhow::Ok(seen)
    })
    .await?;
    scenario.observed.before.insert(object, seen);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use testkit::apiserver::ApiServer;

    use super::*;
    use crate::scenario::{Cluster, Environment};

    struct InMemory(Client);

    impl Environment for InMemory {
        fn client(&self, _: &Cluster) -> anyhow::Result<Client> {
            Ok(self.0.clone())
        }
    }

    #[tokio::test]
    async fn event_of_an_earlier_scenario_is_not_accepted_after_a_response_without_a_version() {
        let server = ApiServer::new();
        server.put(&json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "reason": "Rejected", "note": "a text",
            "metadata": { "name": "x.1", "namespace": "kyma-system" },
            "regarding": { "kind": "Node", "name": "x" },
        }));
        let client = Client::new(server.client());
        let deleted = client.ask(Method::DELETE, "/api/v1/nodes/x", None).await;
        let mut scenario = Scenario::default();
        scenario.shared = Some(Arc::new(InMemory(client)));
        scenario.observed.last = Some(deleted.unwrap());
        let object: ObjectRef = "Node \"kyma-system/x\"".parse().unwrap();
        let seen = async |scenario: &mut Scenario| {
            event(scenario, object.clone(), "Rejected".into(), "text".into()).await
        };
        let error = seen(&mut scenario).await.unwrap_err().to_string();
        assert!(
            error.contains("may have Events of earlier scenarios"),
            "{error}"
        );
        scenario.alias("x", "x");
        seen(&mut scenario).await.unwrap();
    }
}
