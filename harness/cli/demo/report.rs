//! What the demo prints: a diff of the two Pods, one table, and a line for each measured time.
//!
//! Nothing is wider than 100 columns except commands to be copied. All text is colored: who prints it removes colors where
//! there is no terminal.

use std::time::Duration;

use comfy_table::presets::{NOTHING, UTF8_FULL};
use comfy_table::{ContentArrangement, Row, Table, TableStyle};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::comparison::{Comparison, WITH, WITHOUT};
use super::pod::{PodResult, readable, waiting};
use e2e::landscape::shown;

/// The first step: landscape, diff, table, and how to continue on a kept cluster.
pub(super) fn comparison(comparison: &Comparison) -> String {
    let (landscape, file) = (
        &comparison.scenario.landscape,
        shown(&comparison.scenario.file),
    );
    let decisions = comparison.decisions.iter();
    let decisions = decisions.map(|it| it.split_once(": ").unwrap_or((it, "")));
    let decisions = decisions.map(|(feature, reason)| [feature, reason]);
    let verdict = match comparison.differences.join("\n    ") {
        none if none.is_empty() => paint(GREEN, &format!("  ✓ the Pod is as {file} expects")),
        all => paint(
            RED,
            &format!("  ✗ the Pod is not as {file} expects:\n    {all}"),
        ),
    };
    let workload = format!(
        "{}, applied unchanged twice: to Namespace {WITHOUT} before the webhook is installed, to Namespace {WITH} after",
        shown(&comparison.manifest)
    );
    let facts = [
        ["description", &landscape.description],
        ["workload", &workload],
    ];
    let stored = "as the API server stores them: - without, + with the webhook";
    [
        heading(&format!("Landscape {}", landscape.name), &file),
        table(NOTHING, facts),
        heading("Difference of the Pods", stored),
        diff(comparison),
        heading("Decisions", "as printed by preview for the same file"),
        table(NOTHING, decisions),
        heading("Result", "read from the API server and in the container"),
        table(UTF8_FULL, results(comparison)),
        verdict + "\n",
        comparison
            .kept
            .as_ref()
            .map_or_else(String::new, |kept| commands(comparison, kept)),
    ]
    .concat()
}

/// A further step: what happened, in order.
pub(super) fn step(title: &str, note: &str, facts: &[String]) -> String {
    let mark = paint(GREEN, "✓");
    let lines = facts.iter().map(|fact| format!("  {mark} {fact}\n"));
    heading(title, note) + &lines.collect::<String>()
}

/// The last lines: the time, and what was left.
pub(super) fn closing(is_kept: bool, total: Duration, set_up: Duration) -> String {
    let left = if is_kept {
        "the clusters are kept; remove them with: cargo harness cluster down"
    } else {
        "everything was removed; keep the clusters with: cargo demo --keep"
    };
    let [total, set_up] = [total, set_up].map(|it| format!("{:.1} s", it.as_secs_f64()));
    format!("\n  {total} in total, {set_up} of it set-up and builds\n  {left}")
}

fn paint(code: u8, text: &str) -> String {
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

fn heading(title: &str, note: &str) -> String {
    format!("\n  {}  {}\n", paint(BOLD, title), paint(DIM, note))
}

/// The whole Pod, not only a patch of it: `-` marks what it has without the webhook, `+` what it has with it.
fn diff(comparison: &Comparison) -> String {
    let [before, after] = [&comparison.without, &comparison.with].map(|result| {
        let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
        serde_saphyr::to_string_with_options(&readable(&result.pod), options)
            .unwrap_or_else(|error| error.to_string())
    });
    let diff = TextDiff::from_lines(&before, &after);
    let lines = diff.iter_all_changes().map(|change| {
        let color = match change.tag() {
            ChangeTag::Delete => RED,
            ChangeTag::Insert => GREEN,
            ChangeTag::Equal => DIM,
        };
        let text = format!("{} {}", change.tag(), change.value().trim_end());
        format!("  {}\n", paint(color, &text))
    });
    lines.collect()
}

/// A row for each fact, with a column for each Pod.
fn results(comparison: &Comparison) -> impl Iterator<Item = [String; 3]> {
    let without = facts_of("without the webhook", &comparison.without);
    let with = facts_of("with the webhook", &comparison.with);
    let names = [
        "",
        "Pod",
        "container",
        "image",
        "pull Secret",
        "in the container",
    ];
    let rows = names.into_iter().zip(without.into_iter().zip(with));
    rows.map(|(name, (without, with))| [name.to_owned(), without, with])
}

/// A title, then phase, container, images, pull Secret, and what the container printed.
fn facts_of(title: &str, PodResult { pod, answers }: &PodResult) -> [String; 6] {
    let container = match waiting(pod) {
        None => "started".to_owned(),
        // Container runtimes repeat the image at every level; the last level is the cause.
        Some((reason, message)) => match message.rfind("failed to ") {
            None | Some(0) => format!("{reason}: {message}"),
            Some(last) => format!("{reason}: … {}", &message[last..]),
        },
    };
    let names = |list: &Value, field: &str| {
        let members = list.as_array().into_iter().flatten();
        let names: Vec<_> = members.filter_map(|it| it[field].as_str()).collect();
        names.join("\n")
    };
    let answers: Vec<_> = answers.iter().map(|(text, _)| text.as_str()).collect();
    let phase = pod["status"]["phase"].as_str();
    [
        title.to_owned(),
        phase.unwrap_or("unknown").to_owned(),
        container,
        names(&pod["spec"]["containers"], "image"),
        names(&pod["spec"]["imagePullSecrets"], "name"),
        answers.join("\n"),
    ]
    .map(|text| {
        if text.is_empty() {
            "–".to_owned()
        } else {
            text
        }
    })
}

fn commands(comparison: &Comparison, container: &str) -> String {
    let (preview, kubeconfig) = (&comparison.preview, comparison.kubeconfig.display());
    let kubectl = format!("docker exec {container} kubectl");
    let commands = format!(
        "# why the first Pod waits\n{kubectl} -n {WITHOUT} describe pod\n\
         # the second Pod\n{kubectl} -n {WITH} get pod -o yaml\n\
         # logs of the webhook\n{kubectl} -n kyma-system logs -l app.kubernetes.io/name=rt-bootstrapper\n\
         # the same decisions without a cluster\n{preview}\n\
         # your own kubectl\nexport KUBECONFIG={kubeconfig}"
    );
    let commands = commands.lines().map(|line| {
        let (gap, color) = if line.starts_with('#') {
            ("\n", DIM)
        } else {
            ("", CYAN)
        };
        format!("{gap}{}\n", paint(color, line))
    });
    heading("Next", "the cluster is kept") + &commands.collect::<String>()
}

/// A table of at most 98 columns with a margin of two.
fn table<R: Into<Row>>(style: TableStyle, rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(style).set_width(98).add_rows(rows);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let lines: Vec<_> = table.lines().collect();
    format!("  {}\n", lines.join("\n  "))
}

const BOLD: u8 = 1;
const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const CYAN: u8 = 36;

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use e2e::landscape::Scenario;
    use serde_json::json;

    use super::*;

    fn example() -> Comparison {
        let path = "kyma-project/rt-bootstrapper/pause:e2e";
        let message = format!(
            "failed to pull and unpack image \"replace.me/{path}\": failed to do request: no such host"
        );
        let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": message } });
        let pod = |host: &str, status: Value, secrets: Value, answers| PodResult {
            pod: json!({
                "spec": {
                    "containers": [{ "name": "pause", "image": format!("{host}/{path}") }],
                    "imagePullSecrets": secrets,
                },
                "status": status,
            }),
            answers,
        };
        let pending = json!({ "phase": "Pending", "containerStatuses": [{ "state": waiting }] });
        let running = json!({ "phase": "Running" });
        let secrets = json!([{ "name": "registry-credentials" }]);
        let answers = vec![("KYMA_FIPS_MODE_ENABLED=true".to_owned(), true)];
        Comparison {
            scenario: Scenario::first().unwrap(),
            manifest: "scenarios/fixtures/pause-test1.yaml".into(),
            kubeconfig: "demo.yaml".into(),
            without: pod("replace.me", pending, Value::Null, Vec::new()),
            with: pod("r.test:5000", running, secrets, answers),
            decisions: vec!["applied  alter-img-registry: a long reason, ".repeat(6)],
            preview: "runtime-bootstrapper preview".to_owned(),
            differences: Vec::new(),
            kept: None,
        }
    }

    #[test]
    fn report_has_diff_result_decisions_and_commands_in_a_hundred_columns() {
        let mut example = example();
        let text = strip_str(&comparison(&example)).to_string();
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(
            longest <= Some(100) && !text.contains("docker exec"),
            "{text}"
        );
        example.kept = Some("kept-demo".to_owned());
        example.differences.push("spec.x: is absent".to_owned());
        let kept = strip_str(&comparison(&example)).to_string();
        let shown = [
            "-   - image: replace.me/kyma-project/rt-bootstrapper/pause:e2e",
            "+   - image: r.test:5000/kyma-project/rt-bootstrapper/pause:e2e",
            "ErrImagePull: … failed to do",
            "┆ registry-credentials",
            "KYMA_FIPS_MODE_ENABLED=true",
            "applied  alter-img-registry  a long",
            "✓ the Pod is as scenarios/eu-sovereign.yaml expects",
        ];
        let shown_if_kept = [
            "docker exec kept-demo kubectl -n without-webhook describe pod",
            "expects:\n    spec.x: is absent",
        ];
        let expected = shown.map(|it| (&text, it)).into_iter();
        for (text, expected) in expected.chain(shown_if_kept.map(|it| (&kept, it))) {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }
}
