//! The kernel's bound on inotify instances: a cluster takes about twenty, and Debian's bound is 128 for all of them.
//!
//! Invariant: it is only ever raised. Whoever may not raise it is told how, and can go on with few clusters at once: a
//! kubelet that finds none left ends at once, and what runs on its node hangs.

use std::path::Path;

use super::SetupError;
use crate::progress::Progress;

/// Raises the bound if it is too low for the clusters of a whole run.
pub(super) fn ensure(progress: &Progress) -> Result<(), SetupError> {
    let bound = Path::new(BOUND);
    let text = std::fs::read_to_string(bound).map_err(SetupError::file(bound))?;
    if !is_too_low(&text) {
        return Ok(());
    }
    if std::fs::write(bound, WANTED.to_string()).is_ok() {
        progress.say(&format!(
            "raised {KEY} to {WANTED}: clusters side by side need it"
        ));
    } else {
        progress.say(&format!(
            "{KEY} is too low for many clusters at once; as root: sysctl -w {KEY}={WANTED}"
        ));
    }
    Ok(())
}

/// A text that is no number is nothing that we should overwrite.
fn is_too_low(text: &str) -> bool {
    text.trim().parse().is_ok_and(|bound: u64| bound < WANTED)
}

const KEY: &str = "fs.inotify.max_user_instances";
const BOUND: &str = "/proc/sys/fs/inotify/max_user_instances";
/// For fifty clusters.
const WANTED: u64 = 1_024;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::is_too_low;

    #[rstest]
    #[case::debian("128\n", true)]
    #[case::wanted("1024\n", false)]
    #[case::more("8192\n", false)]
    #[case::no_number("unlimited\n", false)]
    fn the_bound_is_only_raised(#[case] text: &str, #[case] too_low: bool) {
        assert_eq!(is_too_low(text), too_low);
    }
}
