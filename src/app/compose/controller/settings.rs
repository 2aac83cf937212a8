//! From flags to what the parts are told.

use std::num::NonZeroU32;
use std::sync::Arc;

use controller::bootstrapper::direct::{DirectSettings, Installations, ManifestsError, Render};
use controller::bootstrapper::signal::{Place, SignalKeys, SignalSettings};
use controller::bootstrapper::sources::SourceNames;
use controller::runtimes::FleetOptions;
use policy::convergence::observed::Names;
use policy::convergence::waves;

use crate::cli::controller::{
    ControllerArgs, DirectArgs, Failures, ObeyedPlace, SignalArgs, SignalPlace, SourceArgs,
};
use crate::manifests;

fn named(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

pub(super) fn sources(arguments: &ControllerArgs) -> SourceNames {
    SourceNames {
        namespace: arguments.namespace.clone(),
        config_map: arguments.sources.kcp_config_name.clone(),
        pull_secret: named(&arguments.sources.kcp_pull_secret_name),
        trust_bundle: named(&arguments.sources.kcp_cluster_trust_bundle),
    }
}

fn names(arguments: &SourceArgs) -> Names {
    let source = named(&arguments.kcp_cluster_trust_bundle);
    Names {
        namespace: arguments.skr_namespace.clone(),
        pull_secret: named(&arguments.kcp_pull_secret_name)
            .map(|_| arguments.skr_pull_secret_name.clone()),
        trust_bundle: source
            .map(|source| named(&arguments.skr_cluster_trust_bundle).unwrap_or(source)),
        configuration: arguments.skr_config_name.clone(),
    }
}

pub(super) fn signal(arguments: &ControllerArgs) -> SignalSettings {
    SignalSettings {
        keys: keys(&arguments.signal),
        selector: arguments.signal.signal_selector.clone(),
        per_second: arguments.signal.signals_per_second,
        namespace: arguments.namespace.clone(),
        ..SignalSettings::default()
    }
}

fn keys(arguments: &SignalArgs) -> SignalKeys {
    match arguments.signal_keys {
        SignalPlace::Label => SignalKeys::Only(Place::Label),
        SignalPlace::Annotation => SignalKeys::Only(Place::Annotation),
        SignalPlace::Both => SignalKeys::Both {
            obeyed: arguments.signal_obeyed.map(|obeyed| match obeyed {
                ObeyedPlace::Label => Place::Label,
                ObeyedPlace::Annotation => Place::Annotation,
            }),
        },
    }
}

pub(super) fn direct(arguments: &ControllerArgs) -> DirectSettings {
    let given = &arguments.direct;
    let failure_budget = match given.failure_budget {
        Failures::Count(count) => waves::Budget::Count(count),
        Failures::Percent(percent) => waves::Budget::Percent(percent),
    };
    DirectSettings {
        namespace: arguments.namespace.clone(),
        names: names(&arguments.sources),
        adopt: given.adopt_selector.clone(),
        signal_keys: keys(&arguments.signal),
        signal_selector: arguments.signal.signal_selector.clone(),
        signals_per_second: arguments.signal.signals_per_second,
        resync: given.resync_period,
        passes: given.concurrent_runtimes.get(),
        waves: waves::Settings {
            size: NonZeroU32::new(given.wave_size),
            failure_budget,
            paused: false,
            deadline: waves::RUNNING_DEADLINE,
        },
        ..DirectSettings::default()
    }
}

pub(super) fn fleet(arguments: &DirectArgs) -> FleetOptions {
    FleetOptions {
        allow_loopback: arguments.allow_loopback_runtimes,
        ..FleetOptions::default()
    }
}

/// What is installed on runtimes.
///
/// # Errors
/// It cannot be installed on any.
pub(super) fn installations(arguments: &ControllerArgs) -> Result<Installations, ManifestsError> {
    Installations::new(render(arguments), &arguments.direct.webhook_image)
}

/// The manifests that `manifests webhook` prints.
fn render(arguments: &ControllerArgs) -> Render {
    let pull_secret = named(&arguments.direct.webhook_pull_secret);
    let namespace = arguments.sources.skr_namespace.clone();
    Arc::new(move |image| {
        manifests::webhook_objects(image, pull_secret.as_deref(), &namespace)
            .map_err(|error| format!("{error:#}"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use kube::core::Selector;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ControllerArgs,
    }

    fn parsed(flags: &[&str]) -> ControllerArgs {
        let line = [&["controller"], flags].concat();
        Line::try_parse_from(line).unwrap().arguments
    }

    #[test]
    fn every_part_works_in_the_namespace_of_the_flag() {
        let arguments = parsed(&["--namespace=elsewhere"]);
        let namespaces = [
            sources(&arguments).namespace,
            signal(&arguments).namespace,
            direct(&arguments).namespace,
        ];
        assert_eq!(namespaces, ["elsewhere"; 3]);
    }

    /// product.md §2: drift on a runtime is repaired within 10 minutes.
    #[test]
    fn drift_is_repaired_within_ten_minutes_by_default() {
        assert!(direct(&parsed(&[])).resync <= Duration::from_mins(10));
    }

    /// Who is handed back is signalled as everybody else is, and nobody else is.
    #[test]
    fn direct_mode_signals_as_the_signal_does() {
        let arguments = parsed(&[
            "--signal-keys=annotation",
            "--signal-selector=plan=aws",
            "--signals-per-second=3",
        ]);
        let direct = direct(&arguments);
        assert_eq!(direct.signal_keys, SignalKeys::Only(Place::Annotation));
        let selector = Selector::from_iter([("plan", "aws")]);
        assert_eq!(direct.signal_selector, selector);
        assert_eq!(direct.signals_per_second.get(), 3);
    }
}
