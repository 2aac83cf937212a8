//! Near misses: annotations that look like an opt-in or opt-out of a Pod, and have no effect.
//!
//! Invariant: this module only explains decisions and does not affect them. A Pod that is never changed has no near misses,
//! because its reason explains this.

use api::json::FieldPath;
use api::{ALL_KEY, Feature};
use serde::Serialize;

use super::error::Place;
use super::judgement::Explanation;
use super::manifest::{Described, Workload};

/// Domain of the keys of this product.
const DOMAIN: &str = "rt-cfg.kyma-project.io/";

/// The map in the metadata of an object that contains an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataMap {
    Annotations,
    Labels,
}

/// An annotation or label that may be intended for this webhook.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) map: MetadataMap,
    pub(super) key: String,
    pub(super) value: String,
    /// Path of the entry in its object.
    pub(super) field: FieldPath,
    pub(super) place: Place,
}

/// Reason why an annotation or label has no effect, and what would have an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NearMiss {
    /// The object that contains the entry.
    pub(super) object: String,
    /// Path of the entry in the object.
    pub(super) field: String,
    pub(super) value: String,
    /// The file, and the line if it is known.
    pub(super) place: String,
    pub(super) reason: Reason,
    /// The expected key or value.
    pub(super) message: String,
}

/// Kind of the mistake. The name is the code in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Reason {
    /// The value is neither `"true"` nor `"false"`.
    InvalidAnnotationValue,
    /// The key has the domain of this product and does not exist, or is very similar to an existing key.
    UnknownAnnotationKey,
    /// The annotation is on the workload, and not on its Pod template.
    NotOnPodTemplate,
    /// A label was set instead of an annotation.
    NotAnAnnotation,
    /// The value is `"false"`, but the feature is applied nevertheless.
    OptOutNotEnabled,
}

/// The object whose metadata contains a candidate.
#[derive(Clone, Copy)]
enum Level<'a> {
    /// The Pod, or the template of a workload.
    Pod,
    /// A workload above its template, which is at this path.
    Workload {
        template: &'a str,
    },
    Namespace,
}

/// Returns whether a key may be intended for this webhook.
pub(super) fn is_candidate(key: &str) -> bool {
    is_known(key) || key.starts_with(DOMAIN) || meant(key).is_some()
}

/// Returns the near misses of a Pod: on the Pod, on the workload that creates it, and on its Namespace.
pub(super) fn of(
    workload: &Workload,
    namespace: Option<&Described>,
    reasons: &[Explanation],
) -> Vec<NearMiss> {
    if reasons.iter().any(Explanation::is_of_excluded_pod) {
        return Vec::new();
    }
    let applies = |feature| {
        let mut of_it = reasons.iter().filter(|it| it.feature == feature);
        !of_it.any(Explanation::is_refusal)
    };
    let object = workload.source.to_string();
    let template = workload.template.as_str();
    let namespace_object = format!("Namespace {}", workload.source.namespace);
    let on_namespace = namespace.map_or_else(Default::default, |it| it.candidates.as_slice());
    // If the template has the same key, the entry takes effect or is explained there.
    let above = workload.above_pod.iter();
    let above = above.filter(|it| !has_key(&workload.on_pod, &it.key));
    let on_pod = workload.on_pod.iter().map(|it| (Level::Pod, &object, it));
    let above = above.map(|it| (Level::Workload { template }, &object, it));
    let on_namespace = on_namespace.iter();
    let on_namespace = on_namespace.map(|it| (Level::Namespace, &namespace_object, it));
    let all = on_pod.chain(above).chain(on_namespace);
    all.filter_map(|(level, object, it)| {
        let why = explain(it, level, &applies)?;
        Some(NearMiss::new(it, object, why))
    })
    .collect()
}

impl NearMiss {
    fn new(candidate: &Candidate, object: &str, (reason, message): (Reason, String)) -> Self {
        Self {
            object: object.to_owned(),
            field: candidate.field.to_string(),
            value: candidate.value.clone(),
            place: candidate.place.to_string(),
            reason,
            message,
        }
    }
}

fn explain(
    candidate: &Candidate,
    level: Level<'_>,
    applies: &impl Fn(Feature) -> bool,
) -> Option<(Reason, String)> {
    let Candidate {
        map, key, value, ..
    } = candidate;
    let meant = if is_known(key) {
        Some(key.as_str())
    } else {
        meant(key)
    };
    match (level, map) {
        (Level::Workload { .. }, MetadataMap::Labels) => return None,
        (Level::Workload { template }, MetadataMap::Annotations) => {
            let key = meant?;
            let message = format!(
                "expected the annotation {key} at {template}.metadata.annotations: Pods do not get those of the workload"
            );
            return Some((Reason::NotOnPodTemplate, message));
        }
        (_, MetadataMap::Labels) => {
            let message = format!("expected the annotation {}: labels do not opt in", meant?);
            return Some((Reason::NotAnAnnotation, message));
        }
        (_, MetadataMap::Annotations) => {}
    }
    if !is_known(key) {
        return Some((Reason::UnknownAnnotationKey, expected_key(meant)));
    }
    match (value.as_str(), Feature::from_key(key)) {
        ("false", Some(feature)) if applies(feature) => {
            Some((Reason::OptOutNotEnabled, no_opt_out(level)))
        }
        ("true", _) | ("false", Some(_)) => None,
        ("false", None) => any(applies).then(|| {
            let message = "expected \"false\" at the keys of features: it has no effect here";
            (Reason::OptOutNotEnabled, message.to_owned())
        }),
        _ => Some((
            Reason::InvalidAnnotationValue,
            "expected \"true\" or \"false\"".to_owned(),
        )),
    }
}

fn any(applies: &impl Fn(Feature) -> bool) -> bool {
    Feature::ALL.into_iter().any(applies)
}

fn expected_key(meant: Option<&str>) -> String {
    if let Some(key) = meant {
        return format!("unknown key (did you mean {key}?)");
    }
    let keys = Feature::ALL.map(Feature::key);
    format!("unknown key: expected {ALL_KEY}, {}", keys.join(", "))
}

fn no_opt_out(level: Level<'_>) -> String {
    let why = match level {
        Level::Namespace => {
            "on a Namespace, \"false\" only makes an exception of all in the same annotations"
        }
        _ => {
            "optOut of the configuration does not list it, and the configuration or the Namespace opts in"
        }
    };
    format!("the feature is applied all the same: {why}")
}

fn is_known(key: &str) -> bool {
    key == ALL_KEY || Feature::from_key(key).is_some()
}

/// Returns the key that was probably intended by an unknown key. The alias is too short to be recognized in other domains.
fn meant(key: &str) -> Option<&'static str> {
    if key.to_lowercase() == ALL_KEY {
        return Some(ALL_KEY);
    }
    Feature::like(key).map(Feature::key)
}

fn has_key(candidates: &[Candidate], key: &str) -> bool {
    candidates
        .iter()
        .any(|it| it.map == MetadataMap::Annotations && it.key == key)
}
