//! Steps that check clusters against scenario files with a separate process.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Map;

use super::component::{is_asked, register};
use super::prelude::*;
use crate::conformance::{Call, Conformance, Ended, Interrupt};
use crate::landscape::{docker_config, objects, pem, provide_images};
use crate::local::prepare;
use crate::other_webhook;
use crate::runner::root;
use clusters::registry::HOST;

fn landscape(file: &str) -> Result<conformance::Scenario> {
    conformance::Scenario::load(&root().join(file))
}

#[given(expr = "runtime {string} has the landscape of {string}")]
async fn has_landscape(scenario: &mut Scenario, runtime: String, file: String) -> Result {
    let env = scenario.environment_of::<Conformance>()?;
    prepare(&env.fixtures, &env.runtime(&runtime)?.0, &landscape(&file)?).await
}

#[given(expr = "runtime {string} has the configuration of {string} without the product")]
async fn has_configuration(scenario: &mut Scenario, runtime: String, file: String) -> Result {
    let env = scenario.environment_of::<Conformance>()?;
    let (cluster, _) = env.runtime(&runtime)?;
    let landscape = landscape(&file)?.landscape;
    for image in provide_images(&landscape, &env.fixtures.registry).await? {
        cluster.load_image(&image).await?;
    }
    let registry = &env.fixtures.registry;
    let text = objects(&landscape, api::names::SKR_NAMESPACE, registry)?;
    for object in serde_saphyr::from_multiple::<Value>(&text)? {
        let text = |key: &str| object["metadata"][key].as_str();
        let (kind, name) = (object["kind"].as_str(), text("name"));
        let (kind, name) = (kind.context("no kind")?, name.context("no name")?);
        if kind == "Namespace" {
            // The object stays, because its deletion would take longer than the whole scenario.
            cluster.apply(&object.to_string()).await?;
            continue;
        }
        let mut reference = ObjectRef::new(kind, text("namespace"), name);
        reference.runtime = Some(runtime.clone());
        create(scenario, &reference, object.clone(), Write::Apply).await?;
    }
    Ok(())
}

/// The webhook changes a Pod if the Pod or its Namespace opts in to the rewrite.
#[given(
    expr = "another mutating webhook on runtime {string} rewrites image registry {string} to {string}"
)]
async fn other_webhook(
    scenario: &mut Scenario,
    runtime: String,
    from: String,
    to: String,
) -> Result {
    let env = scenario.environment_of::<Conformance>()?;
    let (cluster, client) = env.runtime(&runtime)?;
    let client = client.clone();
    let (asked, rewritten) = (from.clone(), format!("{to}/is-it-asked"));
    let overrides = BTreeMap::from([(from, to)]);
    let decide = move |request| other_webhook::rewrite(client.clone(), overrides.clone(), request);
    let served = other_webhook::serve(&cluster.node_address().await?, decide).await?;
    let label = json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", api::names::SKR_NAMESPACE] });
    let others = json!({ "matchExpressions": [label] });
    let mut object = ObjectRef::new("MutatingWebhookConfiguration", None, "zz-rewriter");
    object.runtime = Some(runtime);
    let mut pod = named("is-it-asked");
    pod["metadata"]["annotations"][api::Feature::RegistryRewrite.key()] = json!("true");
    pod["spec"]["containers"][0]["image"] = json!(format!("{asked}/is-it-asked"));
    register(scenario, &object, (served, others)).await?;
    is_asked(scenario, &object, (pod, &rewritten)).await
}

#[when(
    regex = r#"^the conformance of runtime "([^"]+)" to "([^"]+)" is checked(?: with "([^"]+)")?(?: until (a Namespace of it|the Deployment of the webhook) exists)?$"#
)]
async fn checked(
    scenario: &mut Scenario,
    runtime: String,
    file: String,
    option: String,
    moment: String,
) -> Result {
    let env = scenario.environment_of::<Conformance>()?;
    let (cluster, client) = env.runtime(&runtime)?;
    let folder = tempfile::tempdir()?;
    let mut options: Vec<String> = option.split_whitespace().map(str::to_owned).collect();
    if option.starts_with(INSTALL) {
        let landscape = landscape(&file)?.landscape;
        provide_images(&landscape, &env.fixtures.registry).await?;
        let trust = landscape.trust.as_ref().map(pem).transpose()?;
        let config = docker_config(&landscape, &env.fixtures.registry);
        options.extend(["--image".to_owned(), env.fixtures.webhook.reference.clone()]);
        for (option, content) in [
            ("--docker-config", config),
            ("--trust-bundle", trust.unwrap_or_default()),
        ] {
            let path = folder.path().join(option.trim_start_matches('-'));
            std::fs::write(&path, content)?;
            options.extend([option.to_owned(), path.display().to_string()]);
        }
    }
    let interrupt = match moment.as_str() {
        "" => None,
        "a Namespace of it" => Some(Interrupt::Namespace),
        _ => Some(Interrupt::Deployment),
    };
    let call = Call {
        scenario: &file,
        runtimes: &[&cluster.kubeconfig],
        options: &options,
        interrupt: interrupt.map(|it| (client.clone(), it)),
        ..Call::default()
    };
    let ended = env.program.run(call).await?;
    keep(scenario, &ended)
}

#[when(
    regex = r#"^the conformance of runtime "([^"]+)" to "([^"]+)" is checked by (a user without rights|this user with the rights that were missing)$"#
)]
async fn checked_by(
    scenario: &mut Scenario,
    runtime: String,
    file: String,
    user: String,
) -> Result {
    let env = scenario.environment_of::<Conformance>()?;
    let (cluster, client) = env.runtime(&runtime)?;
    if user == "a user without rights" {
        scenario.name(USER);
        let mut namespace = ObjectRef::new("Namespace", None, USER);
        namespace.runtime = Some(runtime.clone());
        create(scenario, &namespace, json!({}), Write::Create).await?;
    } else {
        grant(scenario, &runtime).await?;
    }
    let namespace = scenario.resolve(USER);
    let token = eventually("the user exists", async || {
        client.token(&namespace, "default").await
    });
    let mut kubeconfig: Value = serde_saphyr::from_str(&cluster.kubeconfig)?;
    kubeconfig["users"][0]["user"] = json!({ "token": token.await? });
    let call = Call {
        scenario: &file,
        runtimes: &[&kubeconfig.to_string()],
        ..Call::default()
    };
    let ended = env.program.run(call).await?;
    keep(scenario, &ended)
}

/// Grants the user the permissions that the last check printed: lines `skr: VERB RESOURCE ["NAME"] PLACE`.
async fn grant(scenario: &mut Scenario, runtime: &str) -> Result {
    let output = kept(scenario)?.output;
    let mut rules = Vec::new();
    for line in output.lines() {
        let Some(right) = line.strip_prefix(&format!("  {runtime}: ")) else {
            continue;
        };
        let mut words = right.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (verb, kind, third) = (word(), word(), word());
        let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
        let mut rule = json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
        if let Ok(name) = serde_json::from_str::<String>(third) {
            rule["resourceNames"] = json!([name]);
        }
        rules.push(rule);
    }
    let is_any = !rules.is_empty();
    ensure!(is_any, "no right is reported as missing:\n{output}");
    let namespace = scenario.resolve(USER);
    let role = json!({ "rules": rules });
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }],
    });
    for (kind, text) in [("ClusterRole", role), ("ClusterRoleBinding", binding)] {
        let mut object = ObjectRef::new(kind, None, USER);
        object.runtime = Some(runtime.to_owned());
        create(scenario, &object, text, Write::Create).await?;
    }
    let env = scenario.environment_of::<Conformance>()?;
    let (_, client) = env.runtime(runtime)?;
    let user = format!("system:serviceaccount:{namespace}:default");
    let right = json!({ "verb": "create", "resource": "namespaces" });
    eventually("the API server has observed the rights", async || {
        check(client.may(&user, right.clone()).await?, "not yet")
    })
    .await
}

#[then(
    regex = r#"^the check of conformance (?:ends with exit code (\d+)|takes at most (\d+) seconds|prints "([^"]+)")$"#
)]
fn ended(scenario: &mut Scenario, code: String, seconds: String, text: String) -> Result {
    let ended = kept(scenario)?;
    if let Ok(most) = seconds.parse::<f64>() {
        let taken = ended.report()?["seconds"].as_f64();
        let taken = taken.context("the report has no time")?;
        return check(taken <= most, format!("{taken} seconds"));
    }
    let seen = format!("exit code {}:\n{}", ended.code, ended.output);
    let is_expected = match code.parse::<i32>() {
        Ok(code) => ended.code == code,
        Err(_) => ended.output.contains(&text),
    };
    check(is_expected, seen)
}

#[then(regex = r#"^conformance check "(.+)" (passed|failed|was not run)(?: with:)?$"#)]
fn check_came_out(scenario: &mut Scenario, title: String, how: String, step: &Step) -> Result {
    let report = kept(scenario)?.report()?;
    let mut found = items(&report["checks"]).filter(|it| it["title"] == *title);
    let found = found.next();
    let found = found.with_context(|| format!("no such check: {}", report["checks"]))?;
    let expected = match how.as_str() {
        "was not run" => "notRun",
        other => other,
    };
    check(found["outcome"] == expected, found)?;
    let Some(text) = &step.docstring else {
        return Ok(());
    };
    let texts: Map<String, Value> = serde_saphyr::from_str(text)?;
    for (field, part) in texts {
        let part = part.as_str().context("a text")?;
        let is = found[&field].as_str().unwrap_or_default();
        let seen = format!("{field}: expected {part:?}, found {is:?}");
        check(is.contains(part), seen)?;
    }
    Ok(())
}

/// Checks the output for secret data: values of the Secret's data, encoded or not, and passwords within a docker configuration.
/// It also checks for the credentials of the registry, which a step may have passed as a file.
#[then(expr = "the check of conformance shows no content of a Secret of runtime {string}")]
async fn no_secret(scenario: &mut Scenario, runtime: String) -> Result {
    let ended = kept(scenario)?;
    let env = scenario.environment_of::<Conformance>()?;
    let (_, client) = env.runtime(&runtime)?;
    let given = BASE64.encode(env.fixtures.registry.identity.docker_config(HOST));
    let mut secrets = client.items("/api/v1/secrets").await?;
    secrets.push(json!({ "data": { "given": given } }));
    let mut contents = Vec::new();
    for secret in secrets {
        for value in secret["data"].as_object().into_iter().flat_map(Map::values) {
            let encoded = text(value);
            let decoded = String::from_utf8(BASE64.decode(encoded)?).unwrap_or_default();
            let config: Value = serde_json::from_str(&decoded).unwrap_or_default();
            let auths = config["auths"].as_object().into_iter();
            for auth in auths.flat_map(Map::values) {
                contents.extend(["password", "auth"].map(|it| text(&auth[it]).to_owned()));
            }
            contents.extend([encoded.to_owned(), decoded]);
        }
    }
    contents.retain(|it| it.len() >= SHORTEST);
    ensure!(contents.len() >= 4, "the credentials are too short");
    let output = ("output".to_owned(), ended.output);
    for (name, text) in ended.reports.iter().chain([(&output.0, &output.1)]) {
        let shown = contents.iter().any(|it| text.contains(it));
        check(!shown, format!("{name} has content of a Secret"))?;
    }
    check(ended.reports.len() == 3, format!("{:?}", ended.reports))
}

pub(super) fn keep(scenario: &mut Scenario, ended: &Ended) -> Result {
    scenario.observed.note(ENDED, serde_json::to_value(ended)?);
    Ok(())
}

fn kept(scenario: &Scenario) -> Result<Ended> {
    let noted = scenario.observed.noted(ENDED)?.clone();
    Ok(serde_json::from_value(noted)?)
}

const INSTALL: &str = "--install";
const ENDED: &str = "end of a check of conformance";
/// Name of the user's Namespace in a scenario.
const USER: &str = "conformance-user";
/// Shortest length of a secret value; shorter values, such as names, are not secret.
const SHORTEST: usize = 12;
