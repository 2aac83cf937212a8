//! Which features have changed a Pod. It is read from the Pod alone, not from what the webhook reports.

use super::pod::{containers, env, pull_secrets};
use super::prelude::*;
use crate::admission::webhook::{LANDSCAPE, VOLUME};

/// "only" and "not" show too that the webhook has mutated the Pod: it has the product's one annotation.
#[then(regex = r#"^(Pod "[^"]+") is (not )?mutated (only )?by "([^"]+)"$"#)]
async fn mutated(
    scenario: &mut Scenario,
    pod: ObjectRef,
    not: String,
    only: String,
    named: String,
) -> Result {
    let named = features(&named)?;
    let (not, only) = (!not.is_empty(), !only.is_empty());
    let sent = scenario.sent(&pod)?.clone();
    expect(scenario, &pod, |seen| {
        for feature in api::Feature::ALL {
            let changed = changed(feature, &sent, seen);
            let is_wrong = match named.contains(&feature) {
                true if not => changed.contains(&true),
                true => changed.is_empty() || changed.contains(&false),
                false => only && changed.contains(&true),
            };
            ensure!(!is_wrong, "{feature:?} by container: {changed:?}: {seen}");
        }
        if not || only {
            let annotations = &seen["metadata"]["annotations"];
            let fields = annotations.as_object().into_iter().flatten();
            let own = fields.filter(|(key, _)| key.starts_with("rt-bootstrapper.kyma-project.io/"));
            let is_marked = annotations[api::names::MARKER] == "true" && own.count() == 1;
            ensure!(is_marked, "{annotations}");
        }
        Ok(())
    })
    .await
}

/// Whether a feature has changed each container, or the Pod if it changes no containers.
fn changed(feature: api::Feature, sent: &Value, seen: &Value) -> Vec<bool> {
    if feature == api::Feature::PullSecret {
        return vec![pull_secrets(seen).len() > pull_secrets(sent).len()];
    }
    let pairs = containers(sent).filter_map(|before| {
        let after = containers(seen).find(|it| it["name"] == before["name"])?;
        Some((before, after))
    });
    let touched = pairs.map(|(before, after)| touches(feature, before, after));
    touched.collect()
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
fn features(names: &str) -> Result<Vec<api::Feature>> {
    let mut features = Vec::new();
    for name in names.split(", ") {
        let mut all = api::Feature::ALL.into_iter();
        match all.find(|feature| feature.key().rsplit('/').next() == Some(name)) {
            Some(feature) => features.push(feature),
            None if name == "all" => features.extend(api::Feature::ALL),
            None => bail!("unknown feature {name:?}"),
        }
    }
    Ok(features)
}
