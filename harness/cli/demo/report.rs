//! What the demo prints: a diff of the two Pods, one table, and a line for each measured time.
//!
//! Nothing is wider than 100 columns except commands to be copied. Color is used on a terminal only, and not when
//! `NO_COLOR` is set (see no-color.org).

use std::io::IsTerminal as _;
use std::time::Duration;

use comfy_table::presets::{NOTHING, UTF8_FULL};
use comfy_table::{ContentArrangement, Row, Table, TableStyle};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::comparison::{Comparison, WITH, WITHOUT};
use super::pod::{PodResult, readable, waiting};
use e2e::landscape::shown;
use e2e::synchronization::Rotation;
use e2e::watching::Delivery;

/// Whether text is colored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Colors(bool);

impl Colors {
    pub(super) fn of_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self(std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb)
    }

    /// The text in the color of an ANSI code.
    fn paint(self, code: u8, text: &str) -> String {
        if self.0 {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn heading(self, title: &str, note: &str) -> String {
        let (title, note) = (self.paint(BOLD, title), self.paint(DIM, note));
        format!("\n  {title}  {note}\n")
    }

    /// A heading and a line for each fact that was measured.
    fn step(self, title: &str, note: &str, facts: &[String]) -> String {
        let mark = self.paint(GREEN, "✓");
        let facts = facts.iter().map(|fact| format!("  {mark} {fact}\n"));
        self.heading(title, note) + &facts.collect::<String>()
    }
}

/// The first step: landscape, diff, table, and how to continue on a kept cluster.
pub(super) fn comparison(comparison: &Comparison, colors: Colors) -> String {
    let file = comparison.scenario.shown();
    let title = format!("Landscape {}", comparison.scenario.landscape.name);
    let decisions = comparison.decisions.iter().map(|decision| [decision]);
    let verdict = match comparison.differences.join("\n    ") {
        none if none.is_empty() => {
            colors.paint(GREEN, &format!("  ✓ the Pod is as {file} expects"))
        }
        all => colors.paint(
            RED,
            &format!("  ✗ the Pod is not as {file} expects:\n    {all}"),
        ),
    };
    let stored = "as the API server stores them: - without, + with the webhook";
    [
        colors.heading(&title, &file),
        table(NOTHING, facts(comparison)),
        colors.heading("Difference of the Pods", stored),
        diff(comparison, colors),
        colors.heading("Decisions", "as printed by preview for the same file"),
        table(NOTHING, decisions),
        colors.heading("Result", "read from the API server and in the container"),
        table(UTF8_FULL, results(comparison)),
        verdict + "\n",
        commands(comparison, colors),
    ]
    .concat()
}

/// The second step.
pub(super) fn rotation(rotation: &Rotation, colors: Colors) -> String {
    let Rotation { runtime, host, .. } = rotation;
    let [arrived, decided] = [rotation.arrived, rotation.decided].map(seconds);
    let note = "a controller on KCP, the webhook on a runtime";
    let lines = [
        format!("the pull Secret on KCP gets credentials for another registry, {host}"),
        format!("{arrived} later {runtime} has the same Secret"),
        format!(
            "{decided} later its webhook adds the pull Secret to a Pod with an image of {host}"
        ),
    ];
    colors.step("A pull Secret changes on KCP", note, &lines)
}

/// The third step.
pub(super) fn delivery(delivery: &Delivery, colors: Colors) -> String {
    let (runtime, manager) = (&delivery.runtime, delivery.manager);
    let [write, received, second] = [delivery.write, delivery.received, delivery.write_in_outage]
        .map(|span| format!("{:.0} ms", span.as_secs_f64() * 1_000.0));
    let after = seconds(delivery.received_after_outage);
    let note = "a watcher on a runtime, a gateway and a listener on KCP";
    let lines = [
        format!("a Kyma is created on runtime {runtime}; the write took {write}"),
        format!("within {received} {manager} on KCP received the event"),
        format!("KCP is unreachable, another Kyma is created; the write took {second}"),
        format!("{after} after KCP is reachable again {manager} received that event, too"),
    ];
    colors.step("A change on a runtime is reported to KCP", note, &lines)
}

/// The last lines: the time, and what was left.
pub(super) fn closing(is_kept: bool, total: Duration, set_up: Duration) -> String {
    let left = if is_kept {
        "the clusters are kept; remove them with: cargo harness cluster down"
    } else {
        "everything was removed; keep the clusters with: cargo demo --keep"
    };
    let [total, set_up] = [total, set_up].map(seconds);
    format!("\n  {total} in total, {set_up} of it set-up and builds\n  {left}")
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn facts(comparison: &Comparison) -> [[String; 2]; 4] {
    let workload = format!(
        "{}, applied unchanged twice: to Namespace {WITHOUT} before the webhook is installed, to Namespace {WITH} after",
        shown(&comparison.manifest)
    );
    let registry = format!("{}, TLS, with authentication", comparison.registry);
    let description = comparison.scenario.landscape.description.clone();
    [
        ["description".to_owned(), description],
        ["cluster".to_owned(), comparison.provider.clone()],
        ["registry".to_owned(), registry],
        ["workload".to_owned(), workload],
    ]
}

/// The whole Pod, not only a patch of it: `-` marks what it has without the webhook, `+` what it has with it.
fn diff(comparison: &Comparison, colors: Colors) -> String {
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
        format!("  {}\n", colors.paint(color, &text))
    });
    lines.collect()
}

/// A row for each fact, with a column for each Pod.
fn results(comparison: &Comparison) -> [[String; 3]; 6] {
    let without = ["without the webhook".to_owned()]
        .into_iter()
        .chain(facts_of(&comparison.without));
    let with = ["with the webhook".to_owned()]
        .into_iter()
        .chain(facts_of(&comparison.with));
    let mut columns = without.zip(with);
    [
        "",
        "Pod",
        "container",
        "image",
        "pull Secret",
        "in the container",
    ]
    .map(|name| {
        let (without, with) = columns.next().unwrap_or_default();
        [name.to_owned(), without, with]
    })
}

/// Phase, container, images, pull Secret, and what the container printed.
fn facts_of(result: &PodResult) -> [String; 5] {
    let container = match waiting(&result.pod) {
        None => "started".to_owned(),
        // Container runtimes repeat the image at every level; the last level is the cause.
        Some((reason, message)) => match message.rfind("failed to ") {
            None | Some(0) => format!("{reason}: {message}"),
            Some(last) => format!("{reason}: … {}", &message[last..]),
        },
    };
    let answers: Vec<&str> = result
        .answers
        .iter()
        .map(|(text, _)| text.as_str())
        .collect();
    let phase = result.pod["status"]["phase"].as_str();
    [
        phase.unwrap_or("unknown").to_owned(),
        container,
        names(&result.pod["spec"]["containers"], "image"),
        names(&result.pod["spec"]["imagePullSecrets"], "name"),
        answers.join("\n"),
    ]
}

/// A field of every member of a list.
fn names(list: &Value, field: &str) -> String {
    let members = list.as_array().into_iter().flatten();
    let names: Vec<_> = members
        .filter_map(|member| member[field].as_str())
        .collect();
    names.join("\n")
}

/// How to continue on a kept cluster.
fn commands(comparison: &Comparison, colors: Colors) -> String {
    let Some(container) = &comparison.kept else {
        return String::new();
    };
    let kubectl = format!("docker exec {container} kubectl");
    let (preview, kubeconfig) = (&comparison.preview, comparison.kubeconfig.display());
    let mut text = colors.heading("Next", "the cluster is kept");
    for (what, command) in [
        (
            "why the first Pod waits",
            format!("{kubectl} -n {WITHOUT} describe pod"),
        ),
        (
            "the second Pod",
            format!("{kubectl} -n {WITH} get pod -o yaml"),
        ),
        (
            "logs of the webhook",
            format!("{kubectl} -n kyma-system logs {LABEL}"),
        ),
        ("the same decisions without a cluster", preview.clone()),
        (
            "your own kubectl",
            format!("export KUBECONFIG={kubeconfig}"),
        ),
    ] {
        let what = colors.paint(DIM, &format!("# {what}"));
        text += &["\n", &what, "\n", &colors.paint(CYAN, &command), "\n"].concat();
    }
    text
}

/// A table of at most 98 columns with a margin of two.
fn table<R: Into<Row>>(style: TableStyle, rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(style).set_width(98).add_rows(rows);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let lines: Vec<_> = table.lines().collect();
    format!("  {}\n", lines.join("\n  "))
}

const LABEL: &str = "-l app.kubernetes.io/name=rt-bootstrapper";
const BOLD: u8 = 1;
const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const CYAN: u8 = 36;

#[cfg(test)]
mod tests;
