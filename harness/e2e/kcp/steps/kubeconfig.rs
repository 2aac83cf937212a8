//! Kubeconfigs: where they lead, and what may not be in them.

use anyhow::{bail, ensure};
use api::runtimes::MODE_DIRECT;
use cucumber::{given, then, when};
use http::Method;
use serde_json::{Value, json};

use crate::kcp::runtime::Runtime;
use crate::kcp::{A_WHILE, World};
use testkit::until::holds;

#[given(regex = "^a Runtime whose kubeconfig has (.+)$")]
async fn hostile(world: &mut World, content: String) -> anyhow::Result<()> {
    super::runtime::bare(world).await?;
    let mut text = world.skr()?.kubeconfig.clone();
    let cluster = &mut text["clusters"][0]["cluster"];
    match content.as_str() {
        "an exec plugin" => {
            let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "id" });
            text["users"][0]["user"] = json!({ "exec": exec });
        }
        "the path of a file" => {
            cluster["certificate-authority-data"].take();
            cluster["certificate-authority"] = json!("/etc/ssl/ca.pem");
        }
        "a proxy" => cluster["proxy-url"] = json!("http://proxy.test:3128"),
        "a plain http address" => {
            let server = cluster["server"].as_str().unwrap_or_default();
            cluster["server"] = json!(server.replace("https:", "http:"));
        }
        "insecure-skip-tls-verify" => cluster["insecure-skip-tls-verify"] = json!(true),
        "a leaf certificate as its CA" => {
            let leaf = text["users"][0]["user"]["client-certificate-data"].clone();
            text["clusters"][0]["cluster"]["certificate-authority-data"] = leaf;
        }
        "text that is no YAML" => text = json!("{"),
        other => bail!("{other}: not in the vocabulary"),
    }
    let text = text
        .as_str()
        .map_or_else(|| text.to_string(), str::to_owned);
    let runtime = world.subject()?;
    world.stage.plane.put_kubeconfig(runtime, &text).await
}

/// The controller reads this one Secret and this one key of it, and reports either as missing.
#[given(regex = "^a Runtime whose kubeconfig Secret (.+)$")]
async fn lacking(world: &mut World, state: String) -> anyhow::Result<()> {
    super::runtime::bare(world).await?;
    let runtime = world.subject()?;
    let plane = &world.stage.plane;
    plane.delete_kubeconfig(runtime).await?;
    let mut object = runtime.kubeconfig_object("");
    match state.as_str() {
        "is missing" => return Ok(()),
        "lacks its key" => object["data"] = json!({ "another": "e30=" }),
        "is empty" => {}
        other => bail!("{other}: not in the vocabulary"),
    }
    plane.cluster.apply(&object.to_string()).await?;
    Ok(())
}

#[when("its kubeconfig loses its key")]
async fn loses_key(world: &mut World) -> anyhow::Result<()> {
    let runtime = world.subject()?;
    let mut object = runtime.kubeconfig_object("");
    object["data"] = json!({});
    world
        .stage
        .plane
        .put_kubeconfig_object(runtime, &object)
        .await
}

#[when("its kubeconfig is written anew")]
async fn written_anew(world: &mut World) -> anyhow::Result<()> {
    let runtime = world.subject()?;
    let text = world.skr()?.kubeconfig.to_string();
    world.stage.plane.put_kubeconfig(runtime, &text).await
}

#[given("a Runtime whose cluster does not answer, in direct mode")]
async fn silent(world: &mut World) -> anyhow::Result<()> {
    let runtime = Runtime::fresh(None);
    world.guests.push(runtime.clone());
    let plane = &world.stage.plane;
    plane
        .put_runtime(&runtime.object(Some(MODE_DIRECT), None))
        .await?;
    let mut text = world.stage.skrs[1].kubeconfig.clone();
    // Documentation's own network: nobody is there.
    text["clusters"][0]["cluster"]["server"] = json!("https://192.0.2.1:6443");
    plane.put_kubeconfig(&runtime, &text.to_string()).await?;
    world.other = Some(runtime);
    Ok(())
}

#[when("another Runtime's kubeconfig leads to the same cluster")]
async fn same_cluster(world: &mut World) -> anyhow::Result<()> {
    let runtime = Runtime::fresh(None);
    world.guests.push(runtime.clone());
    let plane = &world.stage.plane;
    plane.put_runtime(&runtime.object(None, None)).await?;
    let text = world.skr()?.kubeconfig.to_string();
    plane.put_kubeconfig(&runtime, &text).await?;
    world.other = Some(runtime);
    world.look().await
}

#[when("its kubeconfig leads to another cluster")]
async fn another_cluster(world: &mut World) -> anyhow::Result<()> {
    let runtime = world.subject()?.clone();
    let number = usize::from(runtime.skr == Some(0));
    let elsewhere = &world.stage.skrs[number];
    world
        .seen
        .insert("writes elsewhere".to_owned(), elsewhere.writes().await?);
    let text = elsewhere.kubeconfig.to_string();
    world.stage.plane.put_kubeconfig(&runtime, &text).await?;
    // Both clusters are cleared when the scenario ends.
    let moved = Runtime {
        skr: Some(number),
        ..runtime.clone()
    };
    world.guests.extend([runtime, moved]);
    Ok(())
}

#[then("the other cluster is not written to")]
async fn elsewhere_unwritten(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("writes elsewhere");
    let number = usize::from(world.subject()?.skr == Some(0));
    let elsewhere = &world.stage.skrs[number];
    holds("nobody writes there", A_WHILE, || async {
        let now = elsewhere.writes().await?;
        ensure!(now == before, "before {before}\nnow {now}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[when("on the runtime our account loses its rights")]
async fn without_rights(world: &mut World) -> anyhow::Result<()> {
    let skr = world.skr()?;
    skr.cluster.apply(READER).await?;
    let path = "/api/v1/namespaces/kyma-system/serviceaccounts/default/token";
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {},
    });
    let answer = skr
        .dialogue
        .ask(Method::POST, path, Some(&request))
        .await?
        .good()?;
    let mut text: Value = skr.kubeconfig.clone();
    text["users"][0]["user"] = json!({ "token": answer.at("/status/token") });
    let runtime = world.subject()?;
    world
        .stage
        .plane
        .put_kubeconfig(runtime, &text.to_string())
        .await
}

/// It may see everything and write nothing.
const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scenario-reader}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scenario-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scenario-reader}
subjects: [{kind: ServiceAccount, name: default, namespace: kyma-system}]
";
