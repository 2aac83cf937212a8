//! Does a review cost API calls? Counted twice: by the API server, and by the product's own metric.
//!
//! Invariant: what goes by the clock is no review's: renewals of the lease, and watches that begin anew.

use std::net::SocketAddr;

use anyhow::Context as _;

use super::subjects::Subjects;

/// Counters at one moment, or what they grew by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calls {
    /// Reviews that the webhook has answered.
    pub(super) reviews: u64,
    /// Requests that the API server has seen.
    pub(super) seen: u64,
    /// Requests that the webhook says it has made.
    pub(super) told: u64,
}

impl Calls {
    /// The counters now.
    pub(super) async fn now(subjects: &Subjects) -> anyhow::Result<Self> {
        let text = scrape(subjects.metrics).await?;
        let seen = subjects.api.calls();
        let watches: u64 = seen
            .iter()
            .filter(|((verb, _), _)| *verb == "watch")
            .map(|(_, count)| count)
            .sum();
        Ok(Self {
            reviews: sum(&text, "_admission_reviews_total", |_| true)
                .context("the webhook has no metric of reviews")?,
            seen: seen
                .iter()
                .filter(|((verb, resource), _)| *verb != "watch" && resource != "leases")
                .map(|(_, count)| count)
                .sum(),
            told: sum(&text, "rest_client_requests_total", |labels| {
                !labels.contains("resource=\"leases\"")
            })
            .context("the webhook has no metric of API calls")?
            // The metric has a watch as a GET; the API server knows how many there were.
            .saturating_sub(watches),
        })
    }

    /// What has come since.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            reviews: self.reviews - earlier.reviews,
            seen: self.seen - earlier.seen,
            told: self.told - earlier.told,
        }
    }

    /// Whichever counter saw more.
    pub(super) fn most(self) -> u64 {
        self.seen.max(self.told)
    }
}

async fn scrape(metrics: SocketAddr) -> anyhow::Result<String> {
    let answer = reqwest::get(format!("http://{metrics}/metrics")).await?;
    Ok(answer.error_for_status()?.text().await?)
}

/// The sum of a counter over the label sets that count; `None` if it is not there.
fn sum(text: &str, name: &str, counts: impl Fn(&str) -> bool) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(series, value)| {
            let (metric, labels) = series.split_once('{').unwrap_or((series, ""));
            metric.ends_with(name).then_some((labels, value))
        })
        .peekable();
    lines.peek()?;
    lines
        .filter(|(labels, _)| counts(labels))
        .map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_the_labels_that_count() {
        let text = "# TYPE x_calls counter\nx_calls_total{verb=\"get\"} 2\nx_calls_total{verb=\"watch\"} 5\ny 1\n";
        assert_eq!(sum(text, "_calls_total", |_| true), Some(7));
        assert_eq!(
            sum(text, "_calls_total", |labels| !labels.contains("watch")),
            Some(2)
        );
        assert_eq!(sum(text, "_absent_total", |_| true), None);
    }
}
