//! The report as one HTML page. Style and content are in one file, without external resources and scripts.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::{Check, Family, Outcome, PodReport, Report, Verdict};

pub(super) fn page(report: &Report) -> String {
    let (word, class) = match report.verdict() {
        Verdict::Conforms => ("conforms", "passed"),
        Verdict::Differs => ("was not shown to conform", "failed"),
    };
    let [passed, failed, not_run] = report.counts();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { "Conformance: " (report.scenario) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (report.scenario) " " span class=(class) { (word) } }
                    p { (report.description) }
                    p.counts {
                        (count(passed, "passed", "passed")) " "
                        (count(failed, "failed", "failed")) " "
                        (count(not_run, "not-run", "not run"))
                        " in " (report.seconds) " s, " (report.started) ", checked by version " (report.version)
                    }
                }
                (clusters(report))
                @for cluster in &report.clusters {
                    (checks(report, &cluster.name))
                }
                @if !report.pods.is_empty() {
                    h2 #pods { "Pods: template and stored Pod" }
                    @for pod in &report.pods { (diff(pod)) }
                }
                @if !report.timeline.is_empty() { (timeline(report)) }
            }
        }
    };
    page.into_string()
}

/// Returns a number, in the color of its class if it is not zero.
fn count(number: usize, class: &str, word: &str) -> Markup {
    html! { span class=[(number > 0).then_some(class)] { (number) " " (word) } }
}

fn clusters(report: &Report) -> Markup {
    html! {
        h2 #clusters { "Clusters" }
        table {
            thead { tr { th { "cluster" } th { "Kubernetes" } th { "webhook" } } }
            tbody {
                @for cluster in &report.clusters {
                    tr {
                        td { a href={ "#checks-" (cluster.name) } { (cluster.name) } }
                        td { (cluster.kubernetes) }
                        td { code { (cluster.webhook.as_deref().unwrap_or("–")) } }
                    }
                }
            }
        }
    }
}

fn checks(report: &Report, cluster: &str) -> Markup {
    let own = || report.checks.iter().filter(|it| it.cluster == cluster);
    html! {
        @if own().next().is_some() {
            h2 id={ "checks-" (cluster) } { "Checks of " (cluster) }
            @for check in own() { (one(check)) }
        }
    }
}

fn one(check: &Check) -> Markup {
    let (class, word) = match &check.outcome {
        Outcome::Passed => ("passed", "passed"),
        Outcome::Failed(_) => ("failed", "failed"),
        Outcome::NotRun { .. } => ("not-run", "not run"),
    };
    let rows = match &check.outcome {
        Outcome::Passed => Vec::new(),
        Outcome::Failed(it) => vec![
            ("expected", &it.expected),
            ("found", &it.found),
            ("where", &it.location),
            ("likely cause", &it.cause),
            ("next command", &it.next),
        ],
        Outcome::NotRun { reason } => vec![("because", reason)],
    };
    html! {
        article.check {
            p {
                span class=(class) { (word) } " " (check.title)
                @if check.family == Family::Metrics { " " small { "(of this product only)" } }
            }
            @if !rows.is_empty() {
                dl { @for (name, text) in rows { dt { (name) } dd { pre { (text) } } } }
            }
        }
    }
}

fn diff(pod: &PodReport) -> Markup {
    let text = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let (before, after) = (text(&pod.template), text(&pod.pod));
    let lines = TextDiff::from_lines(&before, &after);
    let is_changed = before != after;
    html! {
        details open[is_changed] {
            summary {
                (pod.cluster) ": " (pod.kind) " " (pod.workload)
                @if !is_changed { " (unchanged)" }
            }
            pre.diff {
                @for change in lines.iter_all_changes() {
                    @let (class, sign) = match change.tag() {
                        ChangeTag::Delete => ("removed", "-"),
                        ChangeTag::Insert => ("added", "+"),
                        ChangeTag::Equal => ("same", " "),
                    };
                    span class=(class) { (sign) " " (change.value().trim_end_matches('\n')) "\n" }
                }
            }
        }
    }
}

fn timeline(report: &Report) -> Markup {
    html! {
        h2 #timeline { "Timeline of KCP" }
        ol.timeline {
            @for moment in &report.timeline {
                li { time datetime=(moment.time) { (moment.time) } " " (moment.what) }
            }
        }
    }
}

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1b1f24; --page: #ffffff; --line: #d0d7de; --soft: #f3f5f7;
  --passed: #116329; --failed: #a40e26; --not-run: #7d4e00; --added: #dafbe1; --removed: #ffebe9; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --page: #0d1117; --line: #30363d; --soft: #161b22;
    --passed: #56d364; --failed: #ff8182; --not-run: #e3b341; --added: #0f3d1e; --removed: #4d1219; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid var(--line); }
.passed { color: var(--passed); } .failed { color: var(--failed); font-weight: 600; } .not-run { color: var(--not-run); }
p, span, code, td, summary, li { overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem; border: 1px solid var(--line); }
.check { border-left: 3px solid var(--line); padding: 0 .8rem; margin: .15rem 0; } .check p { margin: 0; }
dl { display: grid; grid-template-columns: 8rem 1fr; gap: .2rem .8rem; margin: .3rem 0 .6rem; } dt { font-weight: 600; } dd { margin: 0; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.45 ui-monospace, monospace; background: var(--soft);
  padding: .3rem .5rem; border-radius: 4px; }
.diff span { display: block; white-space: pre-wrap; } .added { background: var(--added); } .removed { background: var(--removed); }
summary { cursor: pointer; margin: .4rem 0; }
.timeline time { font: 13px ui-monospace, monospace; }
";
