//! Tests of runs that fail before their first write.

use std::path::Path;

use serde_json::json;
use testkit::apiserver::Rights;
use testkit::json::kubeconfig;

use crate::fixture::{DOCUMENT, SCENARIO, cluster, ended, options, own_places, run, scenario};
use crate::{Endpoint, Run};

#[tokio::test(start_paused = true)]
async fn same_cluster_twice_is_an_error_and_nothing_is_made() {
    let text = format!("{SCENARIO}runtimes: [{{name: one}}, {{name: two}}]\n");
    let (scenario, server) = (scenario(&text), cluster(DOCUMENT));
    let error = run(&scenario, &[&server, &server]).await.unwrap_err();
    let said = "one and two are the same cluster";
    assert!(error.to_string().starts_with(said), "{error}");
    assert_eq!(own_places(&server), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_all_named_before_anything_is_made() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    server.behave(|it| it.rights = Rights::with_verbs(&["get", "list"]));
    let error = run(&scenario, &[&server]).await.unwrap_err().to_string();
    for right in [
        "create namespaces cluster-wide",
        "create pods in the namespaces of a run",
        "delete pods in the namespaces of a run",
    ] {
        assert!(error.contains(right), "{right}: {error}");
    }
    assert!(!error.contains("get configmaps"), "{error}");
    assert_eq!(server.requests_of("create namespaces *").len(), 0);
}

#[tokio::test]
async fn kubeconfig_that_leads_nowhere_is_an_error_that_names_cluster_and_cause() {
    let scenario = scenario(SCENARIO);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let cluster = json!({"server": "http://127.0.0.1:1"});
    std::fs::write(&file, kubeconfig("a", &cluster, &json!({}))).unwrap();
    let endpoint = Endpoint::of_file("skr", &file).await.unwrap();
    let run = Run::new(&scenario, None, vec![endpoint], options()).unwrap();
    let error = ended(run).await.unwrap_err().to_string();
    let said = "skr: POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews: ";
    assert!(error.starts_with(said), "{error}");
    assert!(error.contains("refused"), "{error}");
    let missing = Endpoint::of_file("skr", Path::new("/none")).await;
    let error = format!("{:#}", missing.err().unwrap());
    assert!(error.starts_with("kubeconfig /none: "), "{error}");
}

#[test]
fn another_number_of_kubeconfigs_is_an_error() {
    let scenario = scenario(SCENARIO);
    let run = Run::new(&scenario, None, Vec::new(), options());
    let error = run.err().unwrap().to_string();
    let said = "0 kubeconfigs of runtimes, expected one for each of [\"skr\"]";
    assert!(error.ends_with(said), "{error}");
}
