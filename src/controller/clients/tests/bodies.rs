//! Tests that bodies of requests are serialized once for all runtimes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::clients::body::Bodies;

fn kept(bodies: &Bodies) -> usize {
    bodies.0.lock().unwrap().len()
}

fn object(text: &str) -> Arc<Value> {
    Arc::new(json!({"kind": "Secret", "data": {"a": text}}))
}

#[test]
fn a_shared_object_is_serialized_once() {
    let bodies = Bodies::default();
    let [one, other] = ["one", "other"].map(object);
    let _holders = [&one, &other].map(Arc::clone);
    let first = bodies.serialize(&one);
    assert_eq!(first, one.to_string());
    assert_eq!(bodies.serialize(&one).as_ptr(), first.as_ptr());
    assert_eq!(bodies.serialize(&other), other.to_string());
    assert_eq!(kept(&bodies), 2);
}

#[test]
fn the_bytes_of_an_object_are_dropped_after_it() {
    let bodies = Bodies::default();
    for revision in 0..100 {
        let object = object(&revision.to_string());
        let _holder = object.clone();
        assert_eq!(bodies.serialize(&object), object.to_string());
        assert_eq!(kept(&bodies), 1);
    }
}

#[test]
fn the_bytes_of_an_object_for_one_runtime_are_not_kept() {
    let bodies = Bodies::default();
    let object = object("a");
    assert_eq!(bodies.serialize(&object), object.to_string());
    assert_eq!(kept(&bodies), 0);
}

#[tokio::test]
async fn two_runtimes_get_the_same_bytes() {
    let server = answering(BOTH).await;
    let env = Env::new(|_| ());
    let object = object("a");
    let _holder = object.clone();
    for _ in 0..2 {
        let remote = env.open(&server);
        remote.apply(POD, &object, "us", true).await.unwrap();
    }
    assert_eq!(kept(&env.clients.0.bodies), 1);
}
