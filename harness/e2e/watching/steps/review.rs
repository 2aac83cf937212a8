//! Reviews as the API server sends them, and what the watcher answers.

use anyhow::{bail, ensure};
use cucumber::{then, when};
use serde_json::{Value, json};

use crate::watching::World;
use crate::watching::objects::{GROUP, LIFECYCLE, VERSION};
use crate::watching::subject::{Kind, Subject};

#[when(regex = r"^the watcher reviews a (\w+) with (.+)$")]
async fn reviews(world: &mut World, operation: String, change: String) -> anyhow::Result<()> {
    let subject = Subject::fresh(Kind::Kyma, &world.namespace);
    let review = review(&subject, &operation, &change)?;
    world.answer = Some(world.stage.skr.review(LIFECYCLE, &review).await?);
    world.subject = Some(subject);
    world.seen = json!({ "uid": review["request"]["uid"] });
    Ok(())
}

/// `…` stands for the object's namespace and name. `event queued` is one of the two texts that begin so: how long the disk
/// of a busy node takes is not the scenario's subject.
#[then(regex = r#"^it is allowed with "(.+)"$"#)]
fn allowed(world: &mut World, message: String) -> anyhow::Result<()> {
    let name = world.name()?;
    let message = message.replace('…', &format!("{}/{}", name.namespace, name.name));
    let answer = world.answer.clone().unwrap_or_default();
    let messages = match message.as_str() {
        "event queued" => vec!["event queued for KCP", "event queued in memory only"],
        other => vec![other],
    };
    let expected = |message: &&str| {
        json!({
            "uid": world.seen["uid"], "allowed": true,
            "status": { "metadata": {}, "status": "Success", "message": message },
        })
    };
    let is_expected = messages
        .iter()
        .map(expected)
        .any(|it| it == answer["response"]);
    ensure!(is_expected, "expected one of {messages:?}: {answer}");
    Ok(())
}

/// A review as an API server sends it for this operation and change.
fn review(subject: &Subject, operation: &str, change: &str) -> anyhow::Result<Value> {
    let mut old = subject.object(None);
    old["status"] = json!({ "state": "Processing" });
    let mut new = old.clone();
    let mut subresource = None;
    match change {
        "no change" => {}
        "a changed spec" => new["spec"] = json!({ "channel": "fast" }),
        "a changed status" => {
            new["status"] = json!({ "state": "Ready" });
            subresource = Some("status");
        }
        "no spec" => {
            new["spec"] = Value::Null;
            old["spec"] = Value::Null;
        }
        other => bail!("{other}: not in the vocabulary"),
    }
    let kind = json!({ "group": GROUP, "version": VERSION, "kind": "Kyma" });
    let mut request = json!({
        "uid": subject.name, "operation": operation, "kind": kind,
        "resource": { "group": GROUP, "version": VERSION, "resource": "kymas" },
        "name": subject.name, "namespace": new["metadata"]["namespace"],
        "object": new, "oldObject": old, "dryRun": false,
    });
    if let Some(subresource) = subresource {
        request["subResource"] = json!(subresource);
    }
    match operation {
        "CREATE" => request["oldObject"] = Value::Null,
        "DELETE" => request["object"] = Value::Null,
        _ => {}
    }
    Ok(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
    }))
}
