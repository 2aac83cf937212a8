//! What the demo prints: a diff of the two Pods, one table, and a line for each measured time.
//!
//! Nothing is wider than 100 columns except commands to be copied. Color is used on a terminal only, and not when
//! `NO_COLOR` is set (see no-color.org).

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use comfy_table::presets::{NOTHING, UTF8_FULL};
use comfy_table::{Cell, Color, ContentArrangement, Table, TableStyle};
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
        format!(
            "\n  {}  {}\n",
            self.paint(BOLD, title),
            self.paint(DIM, note)
        )
    }

    /// A heading and a line for each fact that was measured.
    fn step(self, title: &str, note: &str, facts: &[String]) -> String {
        let mut out = self.heading(title, note);
        for fact in facts {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {} {fact}", self.paint(GREEN, "✓"));
        }
        out
    }

    /// A table of at most 98 columns, so that it fits 100 with its margin.
    fn table(self, style: TableStyle) -> Table {
        let mut table = Table::new();
        table
            .load_style(style)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(98);
        if self.0 {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }
}

/// The first step: landscape, diff, table, and how to continue on a kept cluster.
pub(super) fn comparison(comparison: &Comparison, colors: Colors) -> String {
    let scenario = &comparison.scenario;
    let title = format!("Landscape {}", scenario.landscape.name);
    let mut out = colors.heading(&title, &scenario.shown());
    out += &indented(&facts(comparison, colors));
    out += &colors.heading(
        "Difference of the Pods",
        "as the API server stores them: - without, + with the webhook",
    );
    out += &diff(comparison, colors);
    out += &colors.heading("Decisions", "as printed by preview for the same file");
    out += &indented(&decisions(comparison, colors));
    out += &colors.heading("Result", "read from the API server and in the container");
    out += &indented(&results(comparison, colors));
    out += &if comparison.differences.is_empty() {
        colors.paint(
            GREEN,
            &format!("  ✓ the Pod is as {} expects\n", scenario.shown()),
        )
    } else {
        let differences = comparison.differences.join("\n    ");
        let text = format!(
            "  ✗ the Pod is not as {} expects:\n    {differences}\n",
            scenario.shown()
        );
        colors.paint(RED, &text)
    };
    if let Some(container) = &comparison.kept {
        out += &commands(comparison, container, colors);
    }
    out
}

/// The second step.
pub(super) fn rotation(rotation: &Rotation, colors: Colors) -> String {
    let Rotation { runtime, host, .. } = rotation;
    let (arrived, decided) = (seconds(rotation.arrived), seconds(rotation.decided));
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
    let Delivery {
        runtime, manager, ..
    } = delivery;
    let [write, received, second] =
        [delivery.write, delivery.received, delivery.write_in_outage].map(millis);
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
    let (total, set_up) = (seconds(total), seconds(set_up));
    format!("\n  {total} in total, {set_up} of it set-up and builds\n  {left}")
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn millis(span: Duration) -> String {
    format!("{:.0} ms", span.as_secs_f64() * 1_000.0)
}

fn facts(comparison: &Comparison, colors: Colors) -> Table {
    let landscape = &comparison.scenario.landscape;
    let mut table = colors.table(NOTHING);
    table.add_row(["description", &landscape.description]);
    table.add_row(["cluster", &comparison.provider]);
    let registry = format!("{}, TLS, with authentication", comparison.registry);
    table.add_row(["registry", &registry]);
    if let Some(trust) = &landscape.trust {
        let text = format!(
            "ClusterTrustBundle {}, {} authorities",
            trust.name,
            trust.authorities.len()
        );
        table.add_row(["trust", &text]);
    }
    let text = format!(
        "{}, applied unchanged twice: to Namespace {WITHOUT} before the webhook is installed, to Namespace {WITH} after",
        shown(&comparison.manifest)
    );
    table.add_row(["workload", &text]);
    table
}

/// The whole Pod, not only a patch of it: `-` marks what it has without the webhook, `+` what it has with it.
fn diff(comparison: &Comparison, colors: Colors) -> String {
    let [before, after] = [&comparison.without, &comparison.with].map(|result| {
        let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
        serde_saphyr::to_string_with_options(&readable(&result.pod), options)
            .unwrap_or_else(|error| error.to_string())
    });
    let mut out = String::new();
    for change in TextDiff::from_lines(&before, &after).iter_all_changes() {
        let color = match change.tag() {
            ChangeTag::Delete => RED,
            ChangeTag::Insert => GREEN,
            ChangeTag::Equal => DIM,
        };
        let text = format!("{} {}", change.tag(), change.value().trim_end());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {}", colors.paint(color, &text));
    }
    out
}

fn results(comparison: &Comparison, colors: Colors) -> Table {
    let (without, with) = (&comparison.without, &comparison.with);
    let mut table = colors.table(UTF8_FULL);
    table.set_header(["", "without the webhook", "with the webhook"]);
    for (name, [before, after]) in [
        ("Pod", [phase(without), phase(with)]),
        ("container", [container(without), container(with)]),
        ("image", [images(without), images(with)]),
        ("pull Secret", [secret(without), secret(with)]),
        ("in the container", [answers(without), answers(with)]),
    ] {
        table.add_row([Cell::new(name), before, after]);
    }
    table
}

fn decisions(comparison: &Comparison, colors: Colors) -> Table {
    let mut table = colors.table(NOTHING);
    for decision in &comparison.decisions {
        let mark = if decision.applied { "✓" } else { "·" };
        table.add_row([mark, &decision.feature, &decision.message]);
    }
    table
}

fn colored(text: &str, is_good: bool) -> Cell {
    Cell::new(text).fg(if is_good {
        Color::DarkGreen
    } else {
        Color::DarkRed
    })
}

fn phase(result: &PodResult) -> Cell {
    let phase = result.pod["status"]["phase"].as_str().unwrap_or("unknown");
    colored(phase, phase == "Running")
}

fn container(result: &PodResult) -> Cell {
    let Some((reason, message)) = waiting(&result.pod) else {
        return colored("started", true);
    };
    // Container runtimes repeat the image at every level; the last level is the cause.
    let message = match message.rfind("failed to ") {
        None | Some(0) => message,
        Some(last) => format!("… {}", &message[last..]),
    };
    colored(&format!("{reason}: {message}"), false)
}

fn images(result: &PodResult) -> Cell {
    let containers = result.pod["spec"]["containers"].as_array();
    let containers = containers.into_iter().flatten();
    let images: Vec<_> = containers.filter_map(|it| it["image"].as_str()).collect();
    Cell::new(images.join("\n"))
}

fn secret(result: &PodResult) -> Cell {
    let named = result.pod["spec"]["imagePullSecrets"].as_array();
    let named = named.into_iter().flatten();
    let named: Vec<_> = named.filter_map(|entry| entry["name"].as_str()).collect();
    let is_copied = |name: &String| named.contains(&name.as_str());
    match &result.secret {
        _ if named.is_empty() => Cell::new("none"),
        Some(name) if is_copied(name) => Cell::new(format!(
            "{}, copied to the Namespace by the webhook",
            named.join(", ")
        )),
        _ => Cell::new(named.join(", ")),
    }
}

fn answers(result: &PodResult) -> Cell {
    if result.answers.is_empty() {
        return Cell::new("no container to ask");
    }
    let texts: Vec<&str> = result
        .answers
        .iter()
        .map(|answer| answer.text.as_str())
        .collect();
    colored(
        &texts.join("\n"),
        result.answers.iter().all(|answer| answer.is_expected),
    )
}

fn commands(comparison: &Comparison, container: &str, colors: Colors) -> String {
    let kubectl = format!("docker exec {container} kubectl");
    let mut out = colors.heading("Next", "the cluster is kept");
    for (what, command) in [
        ("all Pods", format!("{kubectl} get pods -A")),
        (
            "why the first Pod waits",
            format!("{kubectl} -n {WITHOUT} describe pod"),
        ),
        (
            "the second Pod",
            format!("{kubectl} -n {WITH} get pod -o yaml"),
        ),
        (
            "the unchanged Deployment",
            format!("{kubectl} -n {WITH} get deployment -o yaml"),
        ),
        (
            "replace the first Pod: the next one goes through the webhook",
            format!("{kubectl} -n {WITHOUT} delete pod --all"),
        ),
        (
            "logs of the webhook",
            format!("{kubectl} -n kyma-system logs -l app.kubernetes.io/name=rt-bootstrapper"),
        ),
        (
            "the same decisions without a cluster",
            comparison.preview.clone(),
        ),
        (
            "your own kubectl",
            format!("export KUBECONFIG={}", comparison.kubeconfig.display()),
        ),
    ] {
        let (what, command) = (
            colors.paint(DIM, &format!("# {what}")),
            colors.paint(CYAN, &command),
        );
        let _ = writeln!(out, "\n{what}\n{command}");
    }
    out
}

fn indented(table: &Table) -> String {
    let lines: Vec<_> = table.lines().collect();
    format!("  {}\n", lines.join("\n  "))
}

const BOLD: u8 = 1;
const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const CYAN: u8 = 36;

#[cfg(test)]
mod tests;
