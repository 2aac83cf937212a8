//! Detection of fields of a Pod with a wrong type.

use api::json::{FieldPath, Step, describe};
use policy::admission::pod::Pod;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Maximum number of errors that are searched in one Pod.
const MOST: usize = 10;

/// Returns the fields that the webhook could not parse, and their problems.
pub(super) fn faults(pod: &Value) -> Vec<(FieldPath, String)> {
    let mut faults = Vec::new();
    let Err(first) = read(pod) else { return faults };
    let mut pod = pod.clone();
    let mut next = Some(first);
    while let Some((path, problem)) = next {
        let mended = mend(&mut pod, &path);
        faults.push((path, problem));
        if mended.is_none() || faults.len() == MOST {
            break;
        }
        next = read(&pod).err();
    }
    faults
}

fn read(pod: &Value) -> Result<(), (FieldPath, String)> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(pod, &mut track);
    match Pod::deserialize(tracked) {
        Ok(_) => Ok(()),
        Err(error) => Err((FieldPath::from(&track.path()), describe(&error))),
    }
}

/// Repairs an error, so that the next one is found.
fn mend(pod: &mut Value, path: &FieldPath) -> Option<()> {
    let (last, steps) = path.0.split_last()?;
    let parent = steps.iter().try_fold(pod, |node, step| match step {
        Step::Key(key) => node.get_mut(key),
        Step::Index(index) => node.get_mut(index),
    })?;
    match last {
        Step::Key(key) => drop(parent.as_object_mut()?.remove(key)?),
        // Items of lists in a Pod are mappings.
        Step::Index(index) => *parent.get_mut(index)? = Value::Object(Map::new()),
    }
    Some(())
}
