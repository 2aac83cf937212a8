//! Amounts of CPU and memory for the container of the webhook.
//!
//! Invariant: installed amounts have the format in which the API server stores them (`1Gi`, not `1024Mi`), because
//! otherwise each comparison with the Deployment would find a difference.

use api::bootstrapper::{ResourceAmounts, WebhookResources};
use serde_json::{Value, json};

/// Suffixes of memory amounts, starting with bytes.
const SUFFIXES: [&str; 4] = ["", "Ki", "Mi", "Gi"];

/// Reason why amounts are not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AmountError {
    #[error("{0:?} is neither cpu=AMOUNT nor memory=AMOUNT, or is given twice")]
    Resource(String),
    #[error("{0:?} is not an amount of CPU: expected cores or thousandths, such as 1 or 50m")]
    Cpu(String),
    #[error("{0:?} is not an amount of memory: expected a binary suffix, as in 128Mi")]
    Memory(String),
    #[error("the request of {0} is larger than its limit")]
    Limit(&'static str),
}

/// Parses `cpu=AMOUNT,memory=AMOUNT`, or one of them, as `kubectl set resources` does.
pub(crate) fn amounts(text: &str) -> Result<ResourceAmounts, AmountError> {
    let mut amounts = ResourceAmounts::default();
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("cpu", amount)) if amounts.cpu.is_none() => {
                amounts.cpu = Some(cpu_text(cpu(amount)?));
            }
            Some(("memory", amount)) if amounts.memory.is_none() => {
                amounts.memory = Some(memory_text(memory(amount)?));
            }
            _ => return Err(AmountError::Resource(part.to_owned())),
        }
    }
    Ok(amounts)
}

/// Returns the amounts as settings of the template of the Deployment. A missing amount keeps the value of the template.
pub(crate) fn settings(
    given: &WebhookResources,
) -> Result<[(&'static str, Option<Value>); 4], AmountError> {
    let WebhookResources { requests, limits } = given;
    let [cpu_request, cpu_limit] = [requests, limits].map(|it| it.cpu.as_deref().map(cpu));
    let [memory_request, memory_limit] =
        [requests, limits].map(|it| it.memory.as_deref().map(memory));
    let cpus = (cpu_request.transpose()?, cpu_limit.transpose()?);
    let memories = (memory_request.transpose()?, memory_limit.transpose()?);
    let exceeds = |(request, limit): (Option<u64>, Option<u64>)| {
        request.is_some_and(|request| limit.is_some_and(|limit| request > limit))
    };
    if exceeds(cpus) {
        return Err(AmountError::Limit("cpu"));
    }
    if exceeds(memories) {
        return Err(AmountError::Limit("memory"));
    }
    Ok([
        ("cpu-request", cpus.0.map(|it| json!(cpu_text(it)))),
        ("cpu", cpus.1.map(|it| json!(cpu_text(it)))),
        (
            "memory-request",
            memories.0.map(|it| json!(memory_text(it))),
        ),
        ("memory-limit", memories.1.map(|it| json!(memory_text(it)))),
    ])
}

/// Parses CPU into thousandths of a core.
fn cpu(text: &str) -> Result<u64, AmountError> {
    let (digits, unit) = match text.strip_suffix('m') {
        Some(digits) => (digits, 1),
        None => (text, 1000),
    };
    number(digits, unit).ok_or_else(|| AmountError::Cpu(text.to_owned()))
}

fn cpu_text(thousandths: u64) -> String {
    if thousandths.is_multiple_of(1000) {
        return (thousandths / 1000).to_string();
    }
    format!("{thousandths}m")
}

/// Parses memory into bytes.
pub(crate) fn memory(text: &str) -> Result<u64, AmountError> {
    let parts = SUFFIXES.into_iter().zip(0..).skip(1);
    let found = parts.filter_map(|(suffix, power)| Some((text.strip_suffix(suffix)?, power)));
    let amount = found
        .last()
        .and_then(|(digits, power)| number(digits, 1024_u64.pow(power)));
    amount.ok_or_else(|| AmountError::Memory(text.to_owned()))
}

fn memory_text(bytes: u64) -> String {
    let mut amount = bytes;
    let mut suffixes = SUFFIXES.into_iter().peekable();
    loop {
        let suffix = suffixes.next().unwrap_or_default();
        if suffixes.peek().is_none() || !amount.is_multiple_of(1024) {
            return format!("{amount}{suffix}");
        }
        amount /= 1024;
    }
}

fn number(digits: &str, unit: u64) -> Option<u64> {
    let is_plain = digits.len() <= 7 && digits.bytes().all(|it| it.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_plain)?;
    number.checked_mul(unit).filter(|it| *it > 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn some(cpu: &str, memory: &str) -> ResourceAmounts {
        let some = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
        ResourceAmounts {
            cpu: some(cpu),
            memory: some(memory),
        }
    }

    #[rstest]
    #[case::both("cpu=50m,memory=64Mi", some("50m", "64Mi"))]
    #[case::order("memory=64Mi,cpu=50m", some("50m", "64Mi"))]
    #[case::one("memory=64Mi", some("", "64Mi"))]
    #[case::as_stored("cpu=2000m,memory=1024Mi", some("2", "1Gi"))]
    #[case::as_stored_too("cpu=1500m,memory=1536Mi", some("1500m", "1536Mi"))]
    #[case::largest_suffix("memory=2048Gi", some("", "2048Gi"))]
    fn amounts_are_read_and_written_as_the_api_server_stores_them(
        #[case] text: &str,
        #[case] expected: ResourceAmounts,
    ) {
        assert_eq!(amounts(text), Ok(expected));
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_resource("64Mi")]
    #[case::another_resource("disk=64Mi")]
    #[case::twice("cpu=1,cpu=2")]
    #[case::nothing("cpu=0")]
    #[case::fraction("cpu=0.5")]
    #[case::sign("cpu=+1")]
    #[case::bytes("memory=1024")]
    #[case::decimal_suffix("memory=64M")]
    #[case::too_many("memory=99999999Gi")]
    fn other_amounts_are_refused(#[case] text: &str) {
        assert!(amounts(text).is_err());
    }

    #[rstest]
    #[case("cpu=2", "cpu=1", Some("cpu"))]
    #[case("memory=1Gi", "memory=1023Mi", Some("memory"))]
    #[case("cpu=1000m,memory=1Gi", "cpu=1,memory=1024Mi", None)]
    fn requests_are_within_limits(
        #[case] requests: &str,
        #[case] limits: &str,
        #[case] larger: Option<&'static str>,
    ) {
        let given = WebhookResources {
            requests: amounts(requests).unwrap(),
            limits: amounts(limits).unwrap(),
        };
        assert_eq!(settings(&given).err(), larger.map(AmountError::Limit));
    }
}
