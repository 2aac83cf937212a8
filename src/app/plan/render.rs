//! Formats a plan as text. Texts of clusters (names, messages, reasons) are printed without control characters.

use std::fmt::Write as _;

use controller::direct::{PlannedWrite, RuntimePlan};

use crate::edge::printable;

/// Number of characters of a hash that are printed.
const SHOWN: usize = 12;

/// Returns the text of a plan.
pub(super) fn text(plan: &RuntimePlan) -> String {
    let mut out = Text(String::new());
    out.line(0, &format!("Runtime {}", plan.runtime));
    out.field("goal", plan.goal);
    out.field("runtime ID", plan.runtime_id.as_deref());
    out.field("cluster UID", plan.cluster_uid.as_deref());
    out.field("not managed", plan.unmanaged);
    out.field("blocked", plan.blocked.as_deref());
    out.field("withheld", plan.withheld);
    for rollout in &plan.rollouts {
        out.field("rollout", Some(rollout));
    }
    if !plan.kcp.is_empty() {
        out.section("KCP");
        plan.kcp.iter().for_each(|it| out.line(2, it));
    }
    if !plan.common.is_empty() {
        out.section("Before all lanes");
        out.steps(&plan.common);
    }
    for lane in &plan.lanes {
        out.section(&format!("Lane {}", lane.name));
        out.steps(&lane.steps);
        match &lane.blocked {
            Some(reason) => out.line(2, &format!("blocked: {reason}")),
            None if lane.steps.is_empty() => out.line(2, "nothing to write"),
            None => {}
        }
        if lane.name == "configuration" {
            let held = plan.held.iter();
            held.for_each(|it| out.line(2, &format!("held: {it}")));
        }
    }
    if !plan.conditions.is_empty() {
        out.section("Conditions that would follow");
        for it in &plan.conditions {
            let line = format!(
                "{:<26}{:<9}{}",
                it.kind,
                format!("{:?}", it.status),
                it.reason
            );
            let message = if it.message.is_empty() {
                String::new()
            } else {
                format!(": {}", it.message)
            };
            out.line(2, &format!("{line}{message}"));
        }
    }
    out.0
}

struct Text(String);

impl Text {
    fn line(&mut self, indent: usize, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{:indent$}{}", "", printable(text));
    }

    fn field(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.line(2, &format!("{:<13}{value}", format!("{name}:")));
        }
    }

    fn section(&mut self, title: &str) {
        self.0.push('\n');
        self.line(0, title);
    }

    fn steps(&mut self, steps: &[Vec<PlannedWrite>]) {
        for (number, step) in steps.iter().enumerate() {
            for write in step {
                self.write(number + 1, write);
            }
        }
    }

    fn write(&mut self, number: usize, write: &PlannedWrite) {
        let place = match &write.namespace {
            Some(namespace) => format!("{namespace}/{}", write.name),
            None => write.name.clone(),
        };
        let line = format!("{number}. {:<9}{} {place}", write.action, write.kind);
        self.line(2, &line);
        for field in &write.fields {
            self.line(7, field);
        }
        let short = |hash: &str| hash.chars().take(SHOWN).collect::<String>();
        if let (Some(from), Some(to)) = (&write.current_hash, &write.desired_hash)
            && from != to
        {
            self.line(7, &format!("hash {} -> {}", short(from), short(to)));
        }
    }
}
