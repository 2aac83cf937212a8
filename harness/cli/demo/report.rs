//! Output of the demo: the steps of the flow, the change of the Pod, and further commands. It fits on one screen: at most 44
//! lines of 115 characters.

use std::path::PathBuf;
use std::time::Duration;

use conformance::readable;
use similar::{ChangeTag, TextDiff};

use super::Seen;

/// Returns the flow, and commands for the kept clusters: KCP and the runtime.
pub(super) fn flow(seen: &Seen, kubeconfigs: Option<&[PathBuf; 2]>) -> String {
    // Steps that are only visible by later steps are omitted.
    let steps = seen.steps.iter().filter_map(|(step, seconds)| {
        let (_, who) = BY.iter().find(|(name, _)| name == step)?;
        Some(format!(
            "  {seconds:>4} s  {step:<34} {}\n",
            paint(DIM, who)
        ))
    });
    let reported = format!(
        "  {:>4} ms  from a change of the Kyma's spec on the runtime to its reconcile by KLM (requeue interval: an hour)\n",
        seen.reported.as_millis()
    );
    [
        heading(
            "A Runtime is created",
            "times by the API servers, seconds since the first step",
        ),
        steps.collect(),
        heading(
            "The module's Pod",
            "- the template of its Deployment, + the Pod as it runs",
        ),
        diff(seen),
        heading(
            "A change comes back",
            "one Watcher: watcher → gateway (istiod's routes, cert-manager's certificates) → KLM",
        ),
        reported,
        kubeconfigs.map_or_else(String::new, commands),
    ]
    .concat()
}

/// Returns the last lines: the duration, the kept objects, and links to documentation.
pub(super) fn closing(is_kept: bool, total: Duration, set_up: Duration) -> String {
    let left = if is_kept {
        "the control plane is kept; cargo harness cluster down removes it"
    } else {
        "everything was removed; look at it with: cargo demo --keep"
    };
    let [total, set_up] = [total, set_up].map(|it| format!("{:.0} s", it.as_secs_f64()));
    format!(
        "\n  {total} in total, {set_up} of it builds and the control plane; {left}\n  \
         next: docs/architecture.md (the same flow as a picture), docs/scenarios.md (check your own landscape)\n"
    )
}

fn paint(code: u8, text: &str) -> String {
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

fn heading(title: &str, note: &str) -> String {
    format!("\n  {}  {}\n", paint(BOLD, title), paint(DIM, note))
}

fn diff(seen: &Seen) -> String {
    let [before, after] = [&seen.template, &seen.pod].map(|it| {
        let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
        let text = serde_saphyr::to_string_with_options(&readable(it), options);
        text.unwrap_or_else(|error| error.to_string())
    });
    let diff = TextDiff::from_lines(&before, &after);
    // The annotations that request the change are equal on both sides and therefore not shown.
    let changes = diff
        .iter_all_changes()
        .filter(|it| it.tag() != ChangeTag::Equal);
    let lines = changes.map(|change| {
        let color = if change.tag() == ChangeTag::Delete {
            RED
        } else {
            GREEN
        };
        let text = format!("{} {}", change.tag(), change.value().trim_end());
        format!("  {}\n", paint(color, &text))
    });
    lines.collect()
}

fn commands([kcp, runtime]: &[PathBuf; 2]) -> String {
    let kcp = format!("kubectl --kubeconfig {}", kcp.display());
    let runtime = format!("kubectl --kubeconfig {}", runtime.display());
    let commands = [
        format!("{kcp} -n kcp-system get runtimes,runtimebootstrappers,kymas"),
        format!("{runtime} -n kyma-system get pod -l app=pause-test1 -o yaml"),
        format!(
            "{runtime} -n kyma-system patch kyma default --type=merge -p '{{\"spec\":{{\"channel\":\"fast\"}}}}'"
        ),
        format!("{kcp} -n kcp-system logs deployment/lifecycle-manager"),
    ];
    let lines = commands
        .map(|it| format!("  {}\n", paint(CYAN, &it)))
        .concat();
    heading("Look yourself", "the clusters run until Ctrl-C") + &lines
}

/// The component that performs each step.
const BY: [(&str, &str); 11] = [
    ("Runtime created", "KEB"),
    ("cluster requested by KIM", "it watches Runtimes"),
    ("kubeconfig published", "KIM, when the cluster answers"),
    ("webhook installed", "the controller on KCP"),
    ("webhook available", "two replicas on the runtime"),
    ("Runtime Ready", "the gate: KEB goes on"),
    ("Kyma created", "KEB"),
    ("module applied", "KLM"),
    ("Pod mutated", "the webhook"),
    ("Pod runs", "image and credentials of the landscape"),
    ("Kyma Ready", "KLM"),
];
const BOLD: u8 = 1;
const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const CYAN: u8 = 36;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anstream::adapter::strip_str;
    use serde_json::Value;

    use super::*;

    #[test]
    fn report_of_the_demo_is_one_screen() {
        let yaml = |file: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../..")
                .join(file);
            let text = std::fs::read_to_string(path).unwrap();
            let text = text.replace("${registry}", "registry.landscape.test:5000");
            serde_saphyr::from_multiple::<Value>(&text)
                .unwrap()
                .remove(0)
        };
        let seen = Seen {
            steps: e2e::flow::STEPS.map(|(_, step)| (step, 7)).to_vec(),
            template: yaml("scenarios/fixtures/pause-test1.yaml")["spec"]["template"].clone(),
            pod: yaml("scenarios/fixtures/pause-test1-pod.yaml"),
            differences: Vec::new(),
            reported: Duration::from_millis(420),
        };
        let text =
            flow(&seen, None) + &closing(false, Duration::from_mins(1), Duration::from_secs(9));
        let text = strip_str(&text).to_string();
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(115) && text.lines().count() <= 44, "{text}");
        for shown in [
            "-   - image: replace.me/kyma-project/rt-bootstrapper/pause:e2e",
            "+     image: registry.landscape.test:5000/kyma-project/rt-bootstrapper/pause:e2e",
            "+   imagePullSecrets:",
            "   7 s  Kyma Ready                         KLM",
            " 420 ms  from a change",
        ] {
            assert!(text.contains(shown), "{shown} is not in\n{text}");
        }
        for (step, _) in BY {
            let is_step = e2e::flow::STEPS.iter().any(|(_, name)| *name == step);
            assert!(is_step, "{step} is not a step");
        }
    }
}
