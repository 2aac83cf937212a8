//! Which features have changed a Pod. It is read from the Pod alone, not from what the webhook reports.

use anyhow::{bail, ensure};
use cucumber::then;
use serde_json::Value;

use super::observation::expect;
use super::pod::{containers, env, items, pod, pull_secrets, sent};
use crate::admission::webhook::{LANDSCAPE, VOLUME};
use crate::scenario::Scenario;

/// "only" and "not" show too that the webhook has mutated the Pod: it has the product's annotation.
#[then(regex = r#"^Pod "([^"]+)" is (not )?mutated (only )?by "([^"]+)"$"#)]
async fn mutated(
    scenario: &mut Scenario,
    name: String,
    not: String,
    only: String,
    named: String,
) -> anyhow::Result<()> {
    let named = features(&named)?;
    let (not, only) = (!not.is_empty(), !only.is_empty());
    let is_wrong = |effect: &Effect| match named.contains(&effect.feature) {
        true if not => effect.in_any_container,
        true => !effect.in_every_container,
        false => only && effect.in_any_container,
    };
    let pod_name = pod(&name)?;
    let sent = sent(scenario, &scenario.resolved(&pod_name))?;
    expect(scenario, &pod_name, |seen| {
        let effects = effects(&sent, seen);
        let wrong = effects.iter().find(|effect| is_wrong(effect));
        ensure!(wrong.is_none(), "{wrong:?}: {seen}");
        Ok(())
    })
    .await?;
    if not || only {
        marked(scenario, &name).await?;
    }
    Ok(())
}

/// Every mutated Pod has the product's one annotation.
async fn marked(scenario: &mut Scenario, name: &str) -> anyhow::Result<()> {
    expect(scenario, &pod(name)?, |seen| {
        let annotations = &seen["metadata"]["annotations"];
        let fields = annotations.as_object().into_iter().flatten();
        let own = fields.filter(|(key, _)| key.starts_with("rt-bootstrapper.kyma-project.io/"));
        ensure!(
            annotations[api::names::MARKER] == "true" && own.count() == 1,
            "{annotations}"
        );
        Ok(())
    })
    .await
}

/// Where a feature has changed a Pod.
#[derive(Debug)]
struct Effect {
    feature: api::Feature,
    in_every_container: bool,
    in_any_container: bool,
}

fn effects(sent: &Value, seen: &Value) -> Vec<Effect> {
    let pairs: Vec<(&Value, &Value)> = containers(sent)
        .filter_map(|before| {
            let after = containers(seen).find(|it| it["name"] == before["name"])?;
            Some((before, after))
        })
        .collect();
    let effect = |feature: api::Feature| {
        let touched: Vec<bool> = match feature {
            api::Feature::PullSecret => vec![pull_secrets(seen).len() > pull_secrets(sent).len()],
            _ => pairs
                .iter()
                .map(|(before, after)| touches(feature, before, after))
                .collect(),
        };
        Effect {
            feature,
            in_every_container: !touched.is_empty() && touched.iter().all(|&it| it),
            in_any_container: touched.contains(&true),
        }
    };
    api::Feature::ALL.into_iter().map(effect).collect()
}

fn touches(feature: api::Feature, before: &Value, after: &Value) -> bool {
    let variable = |name| env(after, name).filter(|_| env(before, name) != env(after, name));
    match feature {
        api::Feature::RegistryRewrite => before["image"] != after["image"],
        api::Feature::TrustBundle => {
            items(&after["volumeMounts"]).any(|mount| mount["name"] == VOLUME)
        }
        api::Feature::FipsMode => variable(api::names::FIPS_VARIABLE) == Some("true"),
        api::Feature::Landscape => variable(api::names::LANDSCAPE_VARIABLE) == Some(LANDSCAPE),
        api::Feature::PullSecret => false,
    }
}

/// Features by the names of their annotations without the prefix, or `all`.
fn features(names: &str) -> anyhow::Result<Vec<api::Feature>> {
    let mut features = Vec::new();
    for name in names.split(", ") {
        let known = api::Feature::ALL
            .into_iter()
            .find(|feature| feature.key().rsplit('/').next() == Some(name));
        match known {
            Some(feature) => features.push(feature),
            None if name == "all" => features.extend(api::Feature::ALL),
            None => bail!("unknown feature {name:?}"),
        }
    }
    Ok(features)
}
