use serde_json::{Value, json};

use super::*;
use crate::demo::comparison::Decision;
use crate::demo::pod::Answer;
use e2e::landscape::Scenario;

fn result(image: &str, status: &Value, secrets: &Value) -> PodResult {
    let spec = json!({
        "containers": [{ "name": "pause", "image": image }], "imagePullSecrets": secrets,
    });
    PodResult {
        pod: json!({ "metadata": {}, "spec": spec, "status": status }),
        answers: Vec::new(),
        secret: None,
    }
}

fn example() -> Comparison {
    let path = "kyma-project/rt-bootstrapper/pause:e2e";
    let message = format!(
        "failed to pull and unpack image \"replace.me/{path}\": failed to do request: no such host"
    );
    let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": message } });
    let waiting = json!({ "phase": "Pending", "containerStatuses": [{ "state": waiting }] });
    let secrets = json!([{ "name": "registry-credentials" }]);
    let running = json!({ "phase": "Running" });
    let mut with = result(&format!("r.test:5000/{path}"), &running, &secrets);
    with.secret = Some("registry-credentials".to_owned());
    let text = "KYMA_FIPS_MODE_ENABLED=true".to_owned();
    with.answers.push(Answer {
        text,
        is_expected: true,
    });
    let decision = |feature: &str, applied| Decision {
        feature: feature.to_owned(),
        applied,
        message: "a long reason, word by word ".repeat(6),
    };
    Comparison {
        scenario: Scenario::first().unwrap(),
        manifest: "scenarios/fixtures/pause-test1.yaml".into(),
        provider: "localhost/kyma-kube:1.36.3".to_owned(),
        registry: "r.test:5000".to_owned(),
        kubeconfig: "demo.yaml".into(),
        without: result(&format!("replace.me/{path}"), &waiting, &Value::Null),
        with,
        decisions: vec![
            decision("alter-img-registry", true),
            decision("set-landscape", false),
        ],
        preview: "runtime-bootstrapper preview".to_owned(),
        differences: Vec::new(),
        kept: None,
    }
}

#[test]
fn report_fits_a_hundred_columns_and_has_color_only_if_wanted() {
    let text = comparison(&example(), Colors(false));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(comparison(&example(), Colors(true)).contains('\u{1b}'));
}

#[test]
fn report_has_diff_result_and_decisions() {
    let text = comparison(&example(), Colors(false));
    for expected in [
        "-   - image: replace.me/kyma-project/rt-bootstrapper/pause:e2e",
        "+   - image: r.test:5000/kyma-project/rt-bootstrapper/pause:e2e",
        "ErrImagePull: … failed to do",
        "registry-credentials, copied",
        "KYMA_FIPS_MODE_ENABLED=true",
        "✓  alter-img-registry  a long",
        "·  set-landscape",
        "✓ the Pod is as scenarios/eu-sovereign.yaml expects",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn commands_are_printed_for_a_kept_cluster_only() {
    let command = "docker exec kept-demo kubectl -n without-webhook describe pod";
    let mut example = example();
    assert!(!comparison(&example, Colors(false)).contains(command));
    example.kept = Some("kept-demo".to_owned());
    assert!(comparison(&example, Colors(false)).contains(command));
}

#[test]
fn difference_from_the_scenario_is_printed() {
    let mut example = example();
    example.differences.push("spec.x: is absent".to_owned());
    let text = comparison(&example, Colors(false));
    assert!(text.contains("expects:\n    spec.x: is absent"), "{text}");
}

#[test]
fn times_of_the_other_steps_are_printed() {
    let rotated = Rotation {
        runtime: "one".to_owned(),
        host: "further.test".to_owned(),
        arrived: Duration::from_millis(320),
        decided: Duration::from_millis(680),
    };
    let received = Delivery {
        runtime: "two".to_owned(),
        manager: "lifecycle-manager",
        write: Duration::from_micros(4_400),
        received: Duration::from_millis(42),
        write_in_outage: Duration::from_millis(5),
        received_after_outage: Duration::from_millis(730),
    };
    let text = rotation(&rotated, Colors(false)) + &delivery(&received, Colors(false));
    let times = [
        "0.3 s later one has",
        "0.7 s later",
        "runtime two; the write took 4 ms",
    ];
    for expected in times
        .iter()
        .chain(&["within 42 ms", "took 5 ms", "0.7 s after KCP"])
    {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}
