//! A Pod as a scenario describes it: a plain one, changed line by line of a table.
//!
//! Invariant: the vocabulary is closed; a line that nobody understands fails the scenario.

use anyhow::{Context as _, bail};
use cucumber::gherkin::Step;
use serde_json::{Value, json};

use super::Feature;
use clusters::images::PROBE;

/// What will be sent.
#[derive(Debug, Clone)]
pub struct Draft(pub Value);

impl Draft {
    /// One container `app` of the probe, in no hurry to be scheduled anywhere.
    #[must_use]
    pub fn plain(name: &str) -> Self {
        Self(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "labels": { "app": name }, "annotations": {} },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "app", "image": PROBE, "imagePullPolicy": "IfNotPresent" }],
            },
        }))
    }

    /// The same with the lines of the step's table.
    ///
    /// # Errors
    /// When a line is not understood.
    pub fn with(mut self, step: &Step) -> anyhow::Result<Self> {
        let rows = step
            .table
            .as_ref()
            .map(|table| table.rows.as_slice())
            .unwrap_or_default();
        for row in rows {
            let [what, value] = row.as_slice() else {
                bail!("a line has two cells: {row:?}")
            };
            self.add(what, value)?;
        }
        Ok(self)
    }

    /// Asks for a feature.
    pub fn say(&mut self, feature: Feature, value: &str) {
        self.0["metadata"]["annotations"][feature.key()] = json!(value);
    }

    fn add(&mut self, what: &str, value: &str) -> anyhow::Result<()> {
        if let Ok(feature) = what.parse::<Feature>() {
            self.say(feature, value);
            return Ok(());
        }
        let spec = &mut self.0["spec"];
        let app = &mut spec["containers"][0];
        match what {
            "image" => app["image"] = json!(value),
            "init image" => push(
                &mut spec["initContainers"],
                json!({ "name": "init", "image": value, "args": ["exit", "0"] }),
            ),
            "sidecar image" => push(
                &mut spec["initContainers"],
                json!({ "name": "sidecar", "image": value, "restartPolicy": "Always" }),
            ),
            "second image" => push(
                &mut spec["containers"],
                json!({ "name": "second", "image": value }),
            ),
            "pull secret entry" => push(&mut spec["imagePullSecrets"], json!({ "name": value })),
            "variable" => {
                let (name, value) = value.split_once('=').context("NAME=value")?;
                push(&mut app["env"], json!({ "name": name, "value": value }));
            }
            "variable from a ConfigMap" => push(
                &mut app["env"],
                json!({
                    "name": value, "valueFrom": { "configMapKeyRef": { "name": "any", "key": "any", "optional": true } },
                }),
            ),
            "own mount" => self.mount(value, json!({ "name": "own", "emptyDir": {} })),
            "mounted image" => self.mount(
                "/mounted",
                json!({ "name": "mounted", "image": { "reference": value } }),
            ),
            "own volume" => push(
                &mut spec["volumes"],
                json!({ "name": value, "emptyDir": {} }),
            ),
            "annotation" | "label" => {
                let (name, value) = value.split_once('=').context("NAME=value")?;
                self.0["metadata"][format!("{what}s")][name] = json!(value);
            }
            "node" => spec["nodeName"] = json!(value),
            "node label" => spec["nodeSelector"] = json!({ value: "true" }),
            "finalizer" => push(&mut self.0["metadata"]["finalizers"], json!(value)),
            _ => bail!("nobody knows what {what:?} of a Pod is"),
        }
        Ok(())
    }

    fn mount(&mut self, path: &str, volume: Value) {
        let spec = &mut self.0["spec"];
        let mount = json!({ "name": volume["name"], "mountPath": path });
        push(&mut spec["containers"][0]["volumeMounts"], mount);
        push(&mut spec["volumes"], volume);
    }
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}
