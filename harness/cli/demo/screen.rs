//! The screen of the demo: what changed, why, what became of it, how to look further.
//!
//! Invariant: a function of the story alone. Everything fits 100 columns but for commands to be copied.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL;
use comfy_table::{Cell, ContentArrangement, Table};

use super::act::{Story, WITH, WITHOUT};
use super::diff;
use super::paint::{Meaning, Paint, WIDTH, colour, wrapped};
use super::pod::{Readable, Seen, waiting};
use super::stage::CONTAINER;
use e2e::landscape::shown;

/// Everything that is to be seen.
pub(super) fn render(story: &Story, paint: Paint) -> String {
    let mut screen = Screen {
        out: String::new(),
        paint,
    };
    screen.landscape(story);
    screen.changes(story);
    screen.reasons(story);
    screen.outcome(story);
    screen.further(story);
    screen.out
}

struct Screen {
    out: String,
    paint: Paint,
}

impl Screen {
    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{text}");
    }

    fn heading(&mut self, number: u8, title: &str, aside: &str) {
        let title = self
            .paint
            .text(Meaning::Heading, &format!("{number}  {title}"));
        let aside = self.paint.text(Meaning::Aside, aside);
        self.line(&format!("\n  {title}  {aside}"));
    }

    fn named(&mut self, name: &str, text: &str) {
        for (number, part) in wrapped(text, WIDTH - NAMES).iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            self.line(&format!("  {name:<0$}{part}", NAMES - 2));
        }
    }

    fn landscape(&mut self, story: &Story) {
        let landscape = &story.scenario.landscape;
        self.line("");
        let title = format!("Landscape {}", landscape.name);
        let title = self.paint.text(Meaning::Heading, &title);
        let aside = self.paint.text(Meaning::Aside, &story.scenario.shown());
        self.line(&format!("  {title}  {aside}"));
        self.line("");
        self.named("what", &landscape.description);
        self.named("cluster", &story.provider);
        self.named(
            "registry",
            &format!("{}, TLS, wants credentials", story.registry),
        );
        if let Some(trust) = &landscape.trust {
            let text = format!(
                "ClusterTrustBundle {}, {} authorities",
                trust.name,
                trust.authorities.len()
            );
            self.named("trust", &text);
        }
        let text = format!(
            "{}, applied twice, byte for byte the same: to namespace {WITHOUT} before the webhook was installed, \
             to namespace {WITH} after",
            shown(&story.manifest)
        );
        self.named("workload", &text);
    }

    fn changes(&mut self, story: &Story) {
        self.heading(
            1,
            "What changed",
            "the two Pods as the API server stores them: - without, + with the webhook",
        );
        self.line("");
        let (without, with) = (
            Readable::of(&story.without.pod),
            Readable::of(&story.with.pod),
        );
        self.out.push_str(&diff::lines(&without, &with, self.paint));
    }

    fn reasons(&mut self, story: &Story) {
        self.heading(2, "Why", "runtime-bootstrapper preview, on the same file");
        self.line("");
        let reasons = &story.preview.reasons;
        let longest = reasons.iter().map(|reason| reason.feature.len()).max();
        let names = longest.unwrap_or_default() + 9;
        for reason in reasons {
            let (mark, meaning) = if reason.applied {
                ("✓", Meaning::Good)
            } else {
                ("·", Meaning::Aside)
            };
            for (number, part) in wrapped(&reason.message, WIDTH - names).iter().enumerate() {
                let (mark, name) = if number == 0 {
                    (self.paint.text(meaning, mark), reason.feature.as_str())
                } else {
                    (" ".to_owned(), "")
                };
                self.line(&format!("     {mark} {name:<0$}{part}", names - 7));
            }
        }
    }

    fn outcome(&mut self, story: &Story) {
        let aside = "read from the API server, asked from inside the container";
        self.heading(3, "What became of them", aside);
        let table = self.table(&story.without, &story.with);
        for line in table.to_string().lines() {
            self.line(&format!("  {line}"));
        }
        let verdict = if story.differences.is_empty() {
            let text = format!("✓ the Pod is as {} expects", story.scenario.shown());
            self.paint.text(Meaning::Good, &text)
        } else {
            let text = format!(
                "✗ the Pod is not as {} expects: {}",
                story.scenario.shown(),
                story.differences.join("; ")
            );
            self.paint.text(Meaning::Bad, &text)
        };
        self.line(&format!("  {verdict}"));
    }

    fn table(&self, without: &Seen, with: &Seen) -> Table {
        let mut table = Table::new();
        table
            .load_style(UTF8_FULL)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["", "without the webhook", "with the webhook"]);
        if self.paint.0 {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        for (name, cells) in [
            ("Pod", [phase(without), phase(with)]),
            ("container", [container(without), container(with)]),
            ("image", [image(without), image(with)]),
            ("pull Secret", [secret(without), secret(with)]),
            ("asked inside", [inside(without), inside(with)]),
        ] {
            let cells = cells.map(|(text, meaning)| cell(&text, meaning));
            table.add_row([Cell::new(name)].into_iter().chain(cells));
        }
        table
    }

    fn further(&mut self, story: &Story) {
        if !story.stays {
            return;
        }
        let kubectl = format!("docker exec {CONTAINER} kubectl");
        let commands = [
            ("all Pods", format!("{kubectl} get pods -A")),
            (
                "why one waits",
                format!("{kubectl} -n {WITHOUT} describe pod"),
            ),
            (
                "what the other got",
                format!("{kubectl} -n {WITH} get pod -o yaml"),
            ),
            (
                "the Deployment, as it was written",
                format!("{kubectl} -n {WITH} get deployment -o yaml"),
            ),
            (
                "heal the first one: its next Pod meets the webhook",
                format!("{kubectl} -n {WITHOUT} delete pod --all"),
            ),
            (
                "what the webhook says",
                format!("{kubectl} -n kyma-system logs -l app.kubernetes.io/name=rt-bootstrapper"),
            ),
            (
                "the same decision, without a cluster",
                story.preview.command.clone(),
            ),
            (
                "or with your own kubectl",
                format!("export KUBECONFIG={}", story.kubeconfig.display()),
            ),
        ];
        self.heading(4, "Look further", "the cluster stays");
        for (what, command) in commands {
            let what = self.paint.text(Meaning::Aside, &format!("# {what}"));
            let command = self.paint.text(Meaning::Command, &command);
            self.line(&format!("\n{what}\n{command}"));
        }
    }
}

fn cell(text: &str, meaning: Meaning) -> Cell {
    let text: Vec<String> = text
        .lines()
        .flat_map(|line| wrapped(line, COLUMN))
        .map(|line| format!("{line:<COLUMN$}"))
        .collect();
    let cell = Cell::new(text.join("\n"));
    match colour(meaning) {
        Some(colour) => cell.fg(colour),
        None => cell,
    }
}

fn phase(seen: &Seen) -> (String, Meaning) {
    let phase = seen.pod["status"]["phase"].as_str().unwrap_or("unknown");
    let meaning = if phase == "Running" {
        Meaning::Good
    } else {
        Meaning::Bad
    };
    (phase.to_owned(), meaning)
}

fn container(seen: &Seen) -> (String, Meaning) {
    match waiting(&seen.pod) {
        Some(waiting) => {
            let text = format!("{}: {}", waiting.reason, innermost(&waiting.message));
            (text, Meaning::Bad)
        }
        None => ("started".to_owned(), Meaning::Good),
    }
}

/// Container runtimes repeat the image at every level; the last level says what went wrong.
fn innermost(message: &str) -> String {
    match message.rfind("failed to ") {
        None | Some(0) => message.to_owned(),
        Some(last) => format!("… {}", &message[last..]),
    }
}

fn image(seen: &Seen) -> (String, Meaning) {
    let containers = seen.pod["spec"]["containers"].as_array();
    let images = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container["image"].as_str());
    (images.collect::<Vec<_>>().join("\n"), Meaning::Aside)
}

fn secret(seen: &Seen) -> (String, Meaning) {
    let named = seen.pod["spec"]["imagePullSecrets"].as_array();
    let named: Vec<&str> = named
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    if named.is_empty() {
        return ("none named".to_owned(), Meaning::Aside);
    }
    let brought = match &seen.secret {
        Some(name) if named.contains(&name.as_str()) => ", which the webhook put there",
        _ => "",
    };
    (format!("{}{brought}", named.join(", ")), Meaning::Aside)
}

fn inside(seen: &Seen) -> (String, Meaning) {
    if seen.inside.is_empty() {
        return ("nobody there to ask".to_owned(), Meaning::Aside);
    }
    let texts: Vec<&str> = seen
        .inside
        .iter()
        .map(|answer| answer.text.as_str())
        .collect();
    let meaning = if seen.inside.iter().all(|answer| answer.good) {
        Meaning::Good
    } else {
        Meaning::Bad
    };
    (texts.join("\n"), meaning)
}

/// Where the text after a name begins.
const NAMES: usize = 12;
/// Width of a column of the table: two of them, the names and the frame make up the screen.
const COLUMN: usize = 37;

#[cfg(test)]
mod tests;
