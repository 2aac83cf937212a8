//! Which features have changed a Pod. It is read from the Pod alone, not from what the webhook reports.

use anyhow::{bail, ensure};
use cucumber::then;
use serde_json::Value;

use super::observation::expect;
use super::pod::{containers, env, items, pod, pull_secrets, sent};
use crate::admission::webhook::{LANDSCAPE, VOLUME};
use crate::scenario::Scenario;

#[then(expr = "Pod {string} is mutated by {string}")]
async fn mutated(scenario: &mut Scenario, name: String, wanted: String) -> anyhow::Result<()> {
    let wanted = features(&wanted)?;
    check(scenario, &name, |effects| {
        let lacking = effects
            .iter()
            .find(|it| wanted.contains(&it.feature) && !it.in_every_container);
        lacking.map(|effect| format!("{} is not applied", effect.feature))
    })
    .await
}

#[then(expr = "Pod {string} is mutated only by {string}")]
async fn mutated_only(scenario: &mut Scenario, name: String, wanted: String) -> anyhow::Result<()> {
    let wanted = features(&wanted)?;
    check(scenario, &name, |effects| {
        let odd = effects.iter().find(|it| {
            if wanted.contains(&it.feature) {
                !it.in_every_container
            } else {
                it.in_any_container
            }
        });
        odd.map(|effect| format!("{effect:?}, expected {wanted:?}"))
    })
    .await?;
    marked(scenario, &name).await
}

#[then(expr = "Pod {string} is not mutated by {string}")]
async fn not_mutated(scenario: &mut Scenario, name: String, other: String) -> anyhow::Result<()> {
    let other = features(&other)?;
    check(scenario, &name, |effects| {
        let found = effects
            .iter()
            .find(|it| other.contains(&it.feature) && it.in_any_container);
        found.map(|effect| format!("{effect:?}"))
    })
    .await?;
    marked(scenario, &name).await
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

async fn check(
    scenario: &mut Scenario,
    name: &str,
    wrong: impl Fn(&[Effect]) -> Option<String>,
) -> anyhow::Result<()> {
    let pod = pod(name)?;
    let sent = sent(scenario, &scenario.resolved(&pod))?;
    expect(scenario, &pod, |seen| {
        let wrong = wrong(&effects(&sent, seen));
        ensure!(wrong.is_none(), "{}: {seen}", wrong.unwrap_or_default());
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
