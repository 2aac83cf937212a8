//! Queries for Prometheus, parsed and compared with the exposed metrics of the components.
//!
//! The labels of each part of a query are computed from its series outwards. This detects metrics and labels that do not
//! exist, a label that an inner aggregation has removed, and two sides without common labels.

use std::collections::BTreeSet;

use policy::sync::status::Reason;
use promql_parser::label::{Labels, Matcher};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality, VectorSelector,
    parse,
};
use rstest::rstest;

use super::exposition::Metric;

/// Labels that Prometheus adds to each series of a target.
pub(super) const TARGET_LABELS: [&str; 5] = ["cluster", "instance", "job", "namespace", "pod"];

type Names = BTreeSet<String>;

/// Returns the errors of a query.
pub(super) fn query_faults(query: &str, exposed: &[Metric]) -> Vec<String> {
    read(query, exposed).1
}

/// Returns the labels of the result of a query, and the errors of the query.
pub(super) fn read(query: &str, exposed: &[Metric]) -> (Names, Vec<String>) {
    let mut check = Check {
        exposed,
        series: 0,
        faults: Vec::new(),
    };
    let labels = match parse(query) {
        Ok(expression) => check.labels(&expression),
        Err(error) => {
            check.faults.push(error);
            Names::new()
        }
    };
    if check.series == 0 && check.faults.is_empty() {
        check.faults.push("no series in the query".to_owned());
    }
    (labels, check.faults)
}

/// Returns the errors of the reasons with which a label is compared. Reasons of conditions are capitalized.
pub(super) fn unknown_reasons(label: &str, value: &str) -> Vec<String> {
    let values = value.split('|').filter(|_| label == "reason");
    let reasons = values.filter(|it| it.starts_with(char::is_uppercase));
    reasons
        .filter(|reason| reason.parse::<Reason>().is_err())
        .map(|reason| format!("{reason} is not a reason"))
        .collect()
}

struct Check<'a> {
    exposed: &'a [Metric],
    series: usize,
    faults: Vec<String>,
}

impl Check<'_> {
    /// Returns the labels that the series of an expression may have.
    fn labels(&mut self, expression: &Expr) -> Names {
        match expression {
            Expr::Aggregate(it) => self.aggregate(it),
            Expr::Unary(it) => self.labels(&it.expr),
            Expr::Binary(it) => self.binary(it),
            Expr::Paren(it) => self.labels(&it.expr),
            Expr::Subquery(it) => self.labels(&it.expr),
            Expr::VectorSelector(it) => self.selector(it),
            Expr::MatrixSelector(it) => self.selector(&it.vs),
            Expr::Call(it) => self.call(it),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Names::new(),
            Expr::Extension(_) => {
                self.faults.push("an extension of PromQL".to_owned());
                Names::new()
            }
        }
    }

    fn selector(&mut self, selector: &VectorSelector) -> Names {
        self.series += 1;
        let name = selector.name.clone().unwrap_or_default();
        let exposed = self.exposed;
        let Some(metric) = exposed.iter().find(|it| it.has_series(&name)) else {
            self.faults.push(format!("{name} is not exposed"));
            return Names::new();
        };
        let mut labels = metric.labels.clone();
        labels.extend(TARGET_LABELS.map(str::to_owned));
        if name.ends_with("_bucket") {
            labels.insert("le".to_owned());
        }
        for Matcher { name, value, .. } in &selector.matchers.matchers {
            if !labels.contains(name) {
                self.faults.push(format!(
                    "{metric} has no label {name}",
                    metric = metric.name
                ));
            }
            self.faults.extend(unknown_reasons(name, value));
        }
        labels
    }

    fn aggregate(&mut self, aggregate: &AggregateExpr) -> Names {
        let mut inner = self.labels(&aggregate.expr);
        match &aggregate.modifier {
            None => Names::new(),
            Some(LabelModifier::Include(by)) => {
                self.expect(by, &inner);
                by.labels.iter().cloned().collect()
            }
            Some(LabelModifier::Exclude(without)) => {
                self.expect(without, &inner);
                inner.retain(|it| !without.labels.contains(it));
                inner
            }
        }
    }

    fn call(&mut self, call: &Call) -> Names {
        let mut labels = Names::new();
        for argument in &call.args.args {
            labels.extend(self.labels(argument));
            if let Expr::MatrixSelector(it) = argument.as_ref() {
                self.range(call.func.name, &it.vs);
            }
        }
        if call.func.name == "histogram_quantile" && !labels.remove("le") {
            self.faults
                .push("histogram_quantile without the label le".to_owned());
        }
        labels
    }

    /// Checks that a rate is only computed for counters and histograms.
    fn range(&mut self, function: &str, selector: &VectorSelector) {
        let name = selector.name.as_deref().unwrap_or_default();
        let metric = self.exposed.iter().find(|it| it.has_series(name));
        let grows = metric.is_none_or(|it| matches!(it.kind.as_str(), "counter" | "histogram"));
        if matches!(function, "rate" | "irate" | "increase") && !grows {
            self.faults
                .push(format!("{function} of {name}, which is not a counter"));
        }
    }

    fn binary(&mut self, binary: &BinaryExpr) -> Names {
        let left = self.labels(&binary.lhs);
        let right = self.labels(&binary.rhs);
        let is_scalar = |it: &Expr| it.value_type() == ValueType::Scalar;
        match (is_scalar(&binary.lhs), is_scalar(&binary.rhs)) {
            (true, _) => return right,
            (_, true) => return left,
            _ => {}
        }
        let modifier = binary.modifier.as_ref();
        let keeps_left = match modifier.map(|it| &it.card) {
            Some(VectorMatchCardinality::ManyToMany | VectorMatchCardinality::ManyToOne(_)) => true,
            Some(VectorMatchCardinality::OneToMany(_)) => return right,
            Some(VectorMatchCardinality::OneToOne) | None => false,
        };
        match modifier.and_then(|it| it.matching.as_ref()) {
            Some(LabelModifier::Include(on)) => {
                self.expect(on, &left);
                self.expect(on, &right);
                if keeps_left {
                    left
                } else {
                    on.labels.iter().cloned().collect()
                }
            }
            Some(LabelModifier::Exclude(_)) => left,
            None if left == right => left,
            None => {
                self.faults.push(format!(
                    "the sides of `{}` have different labels: {left:?}, {right:?}",
                    binary.op
                ));
                left
            }
        }
    }

    fn expect(&mut self, wanted: &Labels, labels: &Names) {
        let missing = wanted.labels.iter().filter(|it| !labels.contains(*it));
        let missing = missing.map(|label| format!("no series of the query has the label {label}"));
        self.faults.extend(missing);
    }
}

fn example(name: &str, kind: &str, label: Option<&str>) -> Metric {
    Metric {
        name: name.to_owned(),
        kind: kind.to_owned(),
        labels: label.into_iter().map(str::to_owned).collect(),
        help: String::new(),
    }
}

#[rstest]
#[case::syntax("sum(x_lost_total", "unclosed left parenthesis")]
#[case::unknown("x_no_such_total > 0", "x_no_such_total is not exposed")]
#[case::counter_without_its_ending("increase(x_lost[5m]) > 0", "x_lost is not exposed")]
#[case::function("increment(x_lost_total[5m]) > 0", "unknown function")]
#[case::label(r#"x_lost_total{raeson="a"} > 0"#, "has no label raeson")]
#[case::group(
    "sum by (kind) (x_lost_total)",
    "no series of the query has the label kind"
)]
#[case::aggregated(
    "sum by (reason) (sum by (pod) (x_lost_total))",
    "has the label reason"
)]
#[case::histogram("x_wait_seconds > 1", "x_wait_seconds is not exposed")]
#[case::quantile(
    "histogram_quantile(0.9, sum(rate(x_wait_seconds_bucket[5m])))",
    "without the label le"
)]
#[case::rate("rate(x_open[5m])", "x_open, which is not a counter")]
#[case::sides(
    "sum by (reason) (x_lost_total) / sum(x_lost_total)",
    "have different labels"
)]
#[case::on("x_lost_total and on (reason) x_open", "has the label reason")]
#[case::reason(r#"x_lost_total{reason=~"Ready|Reddy"}"#, "Reddy is not a reason")]
#[case::constant("vector(1) > 0", "no series in the query")]
fn faults_of_a_query_are_found(#[case] query: &str, #[case] expected: &str) {
    let exposed = [
        example("x_build_info", "info", None),
        example("x_lost_total", "counter", Some("reason")),
        example("x_wait_seconds", "histogram", None),
        example("x_open", "gauge", None),
    ];
    for good in [
        "histogram_quantile(0.9, sum by (le) (rate(x_wait_seconds_bucket[5m]))) > 0.1",
        "sum by (reason) (x_lost_total{reason=\"a\"}) > 0",
        "rate(x_lost_total[5m]) and on (instance) x_build_info",
        "(max(x_open) or vector(0)) < 1",
    ] {
        assert_eq!(query_faults(good, &exposed), Vec::<String>::new(), "{good}");
    }
    let found = query_faults(query, &exposed);
    assert!(found.iter().any(|it| it.contains(expected)), "{found:?}");
}
