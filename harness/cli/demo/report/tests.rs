use serde_json::json;

use super::*;
use e2e::landscape::Scenario;

fn example() -> Comparison {
    let path = "kyma-project/rt-bootstrapper/pause:e2e";
    let message = format!(
        "failed to pull and unpack image \"replace.me/{path}\": failed to do request: no such host"
    );
    let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": message } });
    let pod = |host: &str, status: Value, secrets: Value| PodResult {
        pod: json!({
            "spec": {
                "containers": [{ "name": "pause", "image": format!("{host}/{path}") }],
                "imagePullSecrets": secrets,
            },
            "status": status,
        }),
        answers: Vec::new(),
    };
    let pending = json!({ "phase": "Pending", "containerStatuses": [{ "state": waiting }] });
    let secrets = json!([{ "name": "registry-credentials" }]);
    Comparison {
        scenario: Scenario::first().unwrap(),
        manifest: "scenarios/fixtures/pause-test1.yaml".into(),
        provider: "localhost/kyma-kube:1.36.3".to_owned(),
        registry: "r.test:5000".to_owned(),
        kubeconfig: "demo.yaml".into(),
        without: pod("replace.me", pending, Value::Null),
        with: PodResult {
            answers: vec![("KYMA_FIPS_MODE_ENABLED=true".to_owned(), true)],
            ..pod("r.test:5000", json!({ "phase": "Running" }), secrets)
        },
        decisions: vec!["applied  alter-img-registry: a long reason, ".repeat(6)],
        preview: "runtime-bootstrapper preview".to_owned(),
        differences: Vec::new(),
        kept: None,
    }
}

#[track_caller]
fn assert_has(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn report_has_diff_result_and_decisions_in_a_hundred_columns() {
    let text = comparison(&example(), Colors(false));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert_has(
        &text,
        &[
            "-   - image: replace.me/kyma-project/rt-bootstrapper/pause:e2e",
            "+   - image: r.test:5000/kyma-project/rt-bootstrapper/pause:e2e",
            "ErrImagePull: … failed to do",
            "┆ registry-credentials",
            "KYMA_FIPS_MODE_ENABLED=true",
            "applied  alter-img-registry: a long",
            "✓ the Pod is as scenarios/eu-sovereign.yaml expects",
        ],
    );
    assert!(
        !text.contains('\u{1b}') && !text.contains("docker exec"),
        "{text}"
    );
}

#[test]
fn report_of_a_kept_cluster_has_commands_colors_and_differences() {
    let mut example = example();
    example.kept = Some("kept-demo".to_owned());
    example.differences.push("spec.x: is absent".to_owned());
    let text = comparison(&example, Colors(true));
    assert_has(
        &text,
        &[
            "docker exec kept-demo kubectl -n without-webhook describe pod",
            "expects:\n    spec.x: is absent",
            "\u{1b}[31m",
        ],
    );
}

#[test]
fn times_of_the_other_steps_are_printed() {
    let millis = Duration::from_millis;
    let rotated = Rotation {
        runtime: "one".to_owned(),
        host: "further.test".to_owned(),
        arrived: millis(320),
        decided: millis(680),
    };
    let received = Delivery {
        runtime: "two".to_owned(),
        manager: "lifecycle-manager",
        write: millis(4),
        received: millis(42),
        write_in_outage: millis(5),
        received_after_outage: millis(730),
    };
    let rotated = rotation(&rotated, Colors(false));
    assert_has(&rotated, &["0.3 s later one has", "0.7 s later"]);
    assert_has(
        &delivery(&received, Colors(false)),
        &[
            "runtime two; the write took 4 ms",
            "within 42 ms",
            "took 5 ms",
            "0.7 s after KCP",
        ],
    );
}
