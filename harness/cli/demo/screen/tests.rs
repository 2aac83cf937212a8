use serde_json::{Value, json};

use super::*;
use crate::demo::pod::Answer;
use crate::demo::preview::{Preview, Reason};
use e2e::landscape::Scenario;

fn seen(image: &str, status: &Value, extra: &Value) -> Seen {
    let mut spec = json!({ "containers": [{ "name": "pause", "image": image }] });
    if let (Some(spec), Some(extra)) = (spec.as_object_mut(), extra.as_object()) {
        spec.extend(extra.clone());
    }
    Seen {
        pod: json!({ "metadata": {}, "spec": spec, "status": status }),
        inside: Vec::new(),
        secret: None,
    }
}

fn story(stays: bool) -> Story {
    let path = "kyma-project/rt-bootstrapper/pause:e2e";
    let message = format!(
        "failed to pull and unpack image \"replace.me/{path}\": failed to resolve reference \
         \"replace.me/{path}\": failed to do request: no such host"
    );
    let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": message } });
    let without = json!({ "phase": "Pending", "containerStatuses": [{ "state": waiting }] });
    let with = json!({ "phase": "Running" });
    let secrets = json!({ "imagePullSecrets": [{ "name": "registry-credentials" }] });
    let mut with = seen(&format!("r.test:5000/{path}"), &with, &secrets);
    with.secret = Some("registry-credentials".to_owned());
    with.inside.push(Answer {
        text: "KYMA_FIPS_MODE_ENABLED=true".to_owned(),
        good: true,
    });
    let reason = |applied| Reason {
        feature: "alter-img-registry".to_owned(),
        applied,
        message: "a long reason, word by word ".repeat(6),
    };
    Story {
        scenario: Scenario::first().unwrap(),
        manifest: "scenarios/fixtures/pause-test1.yaml".into(),
        provider: "localhost/kyma-kube:1.36.3".to_owned(),
        registry: "r.test:5000".to_owned(),
        kubeconfig: "demo.yaml".into(),
        without: seen(&format!("replace.me/{path}"), &without, &json!({})),
        with,
        preview: Preview {
            command: "runtime-bootstrapper preview".to_owned(),
            reasons: vec![reason(true), reason(false)],
        },
        differences: Vec::new(),
        stays,
    }
}

#[test]
fn it_fits_a_hundred_columns_and_has_no_colour_unless_wanted() {
    let screen = render(&story(false), Paint(false));
    for line in screen.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(!screen.contains('\u{1b}'), "{screen}");
    assert!(render(&story(false), Paint(true)).contains('\u{1b}'));
}

#[test]
fn it_says_what_changed_and_what_became_of_it() {
    let screen = render(&story(false), Paint(false));
    for expected in [
        "-     image: replace.me/kyma-project/rt-bootstrapper/pause:e2e",
        "+     image: r.test:5000/kyma-project/rt-bootstrapper/pause:e2e",
        "✓ alter-img-registry",
        "· alter-img-registry",
        "ErrImagePull: … failed to do request:",
        "registry-credentials, which the",
        "KYMA_FIPS_MODE_ENABLED=true",
        "✓ the Pod is as scenarios/eu-sovereign.yaml expects",
    ] {
        assert!(screen.contains(expected), "{expected} is not in\n{screen}");
    }
}

#[test]
fn commands_are_shown_for_a_cluster_that_stays() {
    let command = "docker exec kyma-kept-demo kubectl -n without-webhook describe pod";
    assert!(render(&story(true), Paint(false)).contains(command));
    assert!(!render(&story(false), Paint(false)).contains(command));
}

#[test]
fn a_difference_is_told() {
    let mut story = story(false);
    story.differences.push("spec.x: is absent".to_owned());
    let screen = render(&story, Paint(false));
    assert!(screen.contains("expects: spec.x: is absent"), "{screen}");
}
